"""What a loss compares or multiplies, followed back to the layers that gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.evidence import base_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.gradient_flow import GradientFlow
    from agviz.traces.rows import NodeRow

_LOSSES: Final = {"HuberLoss", "L1Loss", "MseLoss", "SmoothL1Loss"}
_DISTANCES: Final = {"Abs", "Pow"}
COMPARING: Final = frozenset(_LOSSES | _DISTANCES)
"""Nodes of losses that compare two tensors, or of what is made of a difference."""
CHOOSING: Final = frozenset(
    {
        *("Alias", "Amax", "Clone", "Expand", "Gather", "Index", "IndexSelect", "Max", "Reshape"),
        *("Select", "Slice", "Squeeze", "ToCopy", "UnsafeView", "Unsqueeze", "View"),
    }
)
"""What takes values of an output as they are."""
JOINING: Final = frozenset({"Cat", "Stack"})
"""What makes one tensor of those of several steps."""
_WITH_DATA: Final = {"Add", "Mul", "Neg", "Sub"}
_STANDARDISING: Final = {
    *("Add", "ClampMin", "Clone", "Expand", "LinalgVectorNorm", "Maximum", "Mean", "Norm", "Pow"),
    *("Sqrt", "Std", "Sum", "Unsqueeze", "Var"),
}
"""What leads from an output to the numbers by which it is centred or scaled."""
_MOST_STEPS: Final = 16


class Side(NamedTuple):
    """One of two things that a loss puts together."""

    output: NodeRow
    """The layer that gave it."""
    first: NodeRow
    """The node that the loss takes it from."""
    arithmetic: frozenset[str]
    """What was done to it with data, by kinds of nodes."""
    is_scaled: bool
    """Whether it was divided by its own norm or deviation."""


def compared(flow: GradientFlow, index: int) -> list[int]:
    """The nodes whose outputs a loss, or a distance, compares: those that need a gradient."""
    if kind_of(flow, index) in _DISTANCES:
        index = next(iter(below_of(flow, index)), index)
        if kind_of(flow, index) != "Sub":
            return []
    return below_of(flow, index)


def side(flow: GradientFlow, index: int) -> Side | None:
    """What leads to an output of a layer through arithmetic with data; None: something else."""
    arithmetic: set[str] = set()
    is_scaled = False
    first = node = flow.nodes[index]
    for _ in range(_MOST_STEPS):
        below = below_of(flow, node.index)
        if weights(flow, node):
            return Side(node, first, frozenset(arithmetic), is_scaled)
        kind = kind_of(flow, node.index)
        if kind in {"Div", "Sub"} and len(below) == 2 and _is_of_itself(flow, below):
            is_scaled |= kind == "Div"
        elif kind in JOINING and len({flow.nodes[each].frame for each in below}) == 1:
            pass  # made by one line in a loop: the first one shows what all are
        elif len(below) != 1 or kind not in CHOOSING | _WITH_DATA:
            return None
        elif kind in _WITH_DATA - {"Neg"}:
            arithmetic.add("Add" if kind == "Sub" else kind)
        node = flow.nodes[below[0]]
    return None


def weights(flow: GradientFlow, node: NodeRow) -> set[int]:
    """The leaves that a layer multiplies by: no data, where any parameter has a name."""
    found = [leaf for leaf, _ in flow.weights(node.index)]
    named = {leaf.index for leaf in found if leaf.parameter}
    if len(named) == len(found) or any(flow.trace.leaves(flow.graph_task).values()):
        return named
    return {leaf.index for leaf in found}


def kind_of(flow: GradientFlow, index: int) -> str:
    """The kind of a node: ``Sub`` of SubBackward0."""
    return base_name(flow.nodes[index].short_name)


def below_of(flow: GradientFlow, index: int) -> list[int]:
    """The nodes that a node's gradients go to, in order."""
    return [edge.consumer for edge in flow.trace.edges_from(flow.graph_task, index)]


def _is_of_itself(flow: GradientFlow, below: list[int]) -> bool:
    """Whether the second is a mean, norm or deviation of the first, or of what that centres."""
    whole, index = below
    of_whole = {whole, *below_of(flow, whole)[:1]}
    return any(each in of_whole for each in _chain(flow, index))


def _chain(flow: GradientFlow, index: int) -> Iterator[int]:
    for _ in range(_MOST_STEPS):
        yield index
        below = below_of(flow, index)
        if len(below) != 1 or kind_of(flow, index) not in _STANDARDISING:
            return
        (index,) = below
