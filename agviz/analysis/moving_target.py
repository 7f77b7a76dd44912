"""A target that a network makes of its own output, and that is trained together with it.

Note [Whose target]
A squared or absolute difference of two outputs of one network trains both. That is meant where both
are made in the same way, as of two views of a sample. Temporal differences are not: one side is
data and a share of what the network says of the next state, ``r + gamma * net(s2)``, which is a
target only while it stays. A program may mean that, too (residual gradients, functional equations),
so it is said and not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.evidence import base_name
from agviz.analysis.program_calls import last_passes
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.vanishing import GradientFlow

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

_LOSSES: Final = {"HuberLoss", "L1Loss", "MseLoss", "SmoothL1Loss"}
_DISTANCES: Final = {"Abs", "Pow"}
_CHOOSING: Final = {
    *("Alias", "Amax", "Gather", "Index", "IndexSelect", "Max", "Reshape", "Select", "Slice"),
    *("Squeeze", "ToCopy", "UnsafeView", "Unsqueeze", "View"),
}
"""What takes values of an output as they are."""
_WITH_DATA: Final = {"Add", "Mul", "Sub"}
_MOST_NODES: Final = 20_000
_MOST_STEPS: Final = 16


class _Side(NamedTuple):
    output: NodeRow
    """The layer that gave the output."""
    first: NodeRow
    """The node that the loss takes it from."""
    arithmetic: frozenset[str]
    """What was done to it with data, by kinds of nodes."""


def moving_target(trace: Trace) -> StepFinding | None:
    """The target of the last pass's loss that is trained, too; None: none is seen.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for task in last_passes(trace, 1):
        if task.nodes > _MOST_NODES or task.create_graph:
            continue
        labels = trace.node_labels(task.id, 0, task.nodes)
        differences = [
            index
            for index, label in enumerate(labels)
            if base_name(label.name) in _LOSSES | _DISTANCES
        ]
        flow = GradientFlow(trace, task.id) if differences else None
        for index in differences:
            found = None if flow is None else _target(flow, flow.nodes[index])
            if found is not None:
                return _finding(found)
    return None


def _target(flow: GradientFlow, node: NodeRow) -> _Side | None:
    kind = base_name(node.short_name)
    if kind in _DISTANCES:
        below = [edge.consumer for edge in flow.trace.edges_from(flow.graph_task, node.index)]
        node = flow.nodes[below[0]] if below else node
        if base_name(node.short_name) != "Sub":
            return None
    elif kind not in _LOSSES:
        return None
    edges = flow.trace.edges_from(flow.graph_task, node.index)
    if len(edges) != 2:
        return None
    sides = [_side(flow, edge.consumer) for edge in edges]
    if None in sides:
        return None
    plain, made = sorted(filter(None, sides), key=lambda side: len(side.arithmetic))
    shared = _weights(flow, plain.output) & _weights(flow, made.output)
    is_one = plain.output.index != made.output.index and bool(shared)
    return made if is_one and not plain.arithmetic and {"Add", "Mul"} <= made.arithmetic else None


def _side(flow: GradientFlow, index: int) -> _Side | None:
    """What leads to an output of a layer through arithmetic with data; None: something else."""
    arithmetic: set[str] = set()
    first = node = flow.nodes[index]
    for _ in range(_MOST_STEPS):
        edges = flow.trace.edges_from(flow.graph_task, node.index)
        if _weights(flow, node):
            return _Side(node, first, frozenset(arithmetic))
        kind = base_name(node.short_name)
        if len(edges) != 1 or kind not in _CHOOSING | _WITH_DATA:
            return None
        if kind in _WITH_DATA:
            arithmetic.add("Add" if kind == "Sub" else kind)
        node = flow.nodes[edges[0].consumer]
    return None


def _weights(flow: GradientFlow, node: NodeRow) -> set[int]:
    """The leaves that a layer multiplies by."""
    return {leaf.index for leaf, _ in flow.weights(node.index)}


def _finding(found: _Side) -> StepFinding:
    return StepFinding(
        kind="moving target",
        heading="the target of the loss is trained, too: it is made of the network's own output",
        frame=found.first.frame,
        paragraph=(
            "The loss compares an output of a network with data and a share of another output of"
            " it, and gradients go into both: the target moves towards the prediction, too. If it"
            " is one of a temporal difference, use detach() or torch.no_grad() for it, or a target"
            " network; if both sides are meant to move, leave it."
        ),
        evidence=(f"node {found.first.index} ({found.first.name}) leads to {found.output.name}",),
    )
