"""Penalties that hold each part of a sample's gradient to a norm of 1, not the whole of it.

Note [Whose norm is meant]
The gradient of one number for each of ``n`` samples has one norm for each sample. Where the norm
of ``[n, c, h, w]`` is taken over one dimension, there are ``n * h * w``. That is right where the
network gives a number for each of those, as a distance for each point of ``[n, points, 3]``. So the
call of ``grad`` is looked up by its line, which the nodes of its graph have, and what it was asked
of is counted; nothing is said where calls in that line were asked of different counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.pass_graph import PassGraph, came, gave
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import GraphTaskRow, NodeRow

_MOST_NODES: Final = 20_000
_PASSES: Final = 4
"""The last ones: a critic's may lie before those of a generator."""
_CALLS: Final = 16
"""Of ``grad``, the last ones before a pass."""
_MOST_DEEP: Final = 6
_NORMS: Final = ("NormBackward", "LinalgVectorNormBackward")
_SQUARES: Final = ("Mul", "Pow")
_DISTANCES: Final = ("Huber", "MseLoss", "SmoothL1Loss")
_EVEN: Final = ("Abs", "Clamp", "Pow", "Relu")
"""What makes differences to a norm of 1 positive."""
_SUB: Final = ("RsubBackward", "SubBackward")
_ALIKE: Final = ("Clone", "Contiguous", "Permute", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_AS_IS: Final = (*_ALIKE, "UnsafeView", "View")
"""What changes no number of a gradient."""


def norm_of_parts(run: RunSteps) -> Iterator[StepFinding]:
    """A norm over some dimensions of each sample's gradient. Note [Whose norm is meant]."""
    for task in run.passes[: -_PASSES - 1 : -1]:
        calls = _calls(run, task)
        if not calls or task.nodes > _MOST_NODES:
            continue
        graph = PassGraph(run, task.id)
        for node in graph.nodes:
            found = _of_norm(graph, node)
            if found is not None and (asked := _asked(run, calls, found[1])) is not None:
                samples, (norm, _, whole) = asked, found
                kept = came(norm) or ()
                if kept[0] == samples < math.prod(kept) and len(whole) > len(_squeezed(kept)):
                    yield _said(norm, samples, kept, whole)
                    return


def _said(
    norm: NodeRow, samples: int, kept: tuple[int, ...], whole: tuple[int, ...]
) -> StepFinding:
    each = math.prod(kept) // samples
    return StepFinding(
        kind="norm of parts",
        heading=f"{each:,} parts of each sample's gradient are held to a norm of 1, not all of it",
        frame=norm.frame,
        paragraph=(
            f"The gradient is {list(whole)}, of one number for each of {samples:,} samples; its"
            f" norm is taken over some dimensions only, and is {list(kept)}. So each of {each:,}"
            " parts of a sample is held to a norm of 1, and that of the whole sample, which the"
            f" penalty is to hold to 1, is driven towards {math.sqrt(each):.3g}. Take the norm"
            " over all dimensions but the first: grad.flatten(1).norm(2, dim=1)."
        ),
    )


def _of_norm(graph: PassGraph, mean: NodeRow) -> tuple[NodeRow, NodeRow, tuple[int, ...]] | None:
    """A norm whose difference to a number is squared and averaged, of what nodes of a line gave.

    Returns:
        Its node, one of those, and the shape of what it was taken of.
    """
    if came(mean) not in {(), None} or not mean.name.startswith(("Mean", "Sum", *_DISTANCES)):
        return None
    node: NodeRow | None = mean
    if not mean.name.startswith(_DISTANCES):
        node, is_even = _only(graph, mean), False
        while node is not None and node.name.startswith((*_EVEN, *_SQUARES)):
            is_even |= node.name.startswith(_EVEN) or len(graph.below.get(node.index, ())) == 2
            node = _only(graph, node)
        if node is None or not is_even or not node.name.startswith(_SUB):
            return None
    norm = None if node is None else _only(graph, node)
    of = None if norm is None else _normed(graph, norm)
    if norm is None or of is None or len(_squeezed(came(norm) or ())) < 2:
        return None
    edge = graph.below.get(of.index, [])
    below = graph.nodes[edge[0].consumer] if edge else None
    whole = gave(of, 0)
    for _ in range(_MOST_DEEP):
        if below is None or not below.name.startswith(_AS_IS):
            break
        below = _only(graph, below)
    if below is None or below.frame is None or whole is None or len(whole) < 3:
        return None
    return norm, below, whole


def _normed(graph: PassGraph, norm: NodeRow) -> NodeRow | None:
    """The node that took what a norm is of: itself, or the squares under a root."""
    if norm.name.startswith(_NORMS):
        return norm
    if not norm.name.startswith(("Sqrt", "Pow")):
        return None
    node = _only(graph, norm)
    if node is not None and node.name.startswith("Add"):
        node = _only(graph, node)
    if node is None or not node.name.startswith("Sum"):
        return None
    square = _only(graph, node)
    return square if square is not None and square.name.startswith(_SQUARES) else None


def _only(graph: PassGraph, node: NodeRow) -> NodeRow | None:
    """The node that one leads to; None: it leads to none, or to several."""
    below = {edge.consumer for edge in graph.below.get(node.index, ())}
    return graph.nodes[below.pop()] if len(below) == 1 else None


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _calls(run: RunSteps, before: GraphTaskRow) -> list[GraphTaskRow]:
    """The calls of ``grad`` with a graph between a pass and the one before it."""
    last = max((task for task in run.passes.ids if task < before.id), default=-1)
    tasks = [task for task in run.trace.graph_tasks.outermost if last < task.id < before.id]
    return [
        task
        for task in tasks[-_CALLS:]
        if task.create_graph and task.roots == 1 and 0 < task.nodes <= _MOST_NODES
    ]


def _asked(run: RunSteps, calls: Sequence[GraphTaskRow], made: NodeRow) -> int | None:
    """Of how many numbers ``grad`` was asked when it made a node; None: that is not known."""
    asked = {
        _numbers(PassGraph(run, task.id))
        for task in calls
        if visible(run.trace.call_site(task.id)) == made.frame
        and max(run.trace.sequence_nrs(task.id), default=0) < (made.sequence_nr or 0)
    }
    return asked.pop() if len(asked) == 1 else None


def _numbers(graph: PassGraph) -> int:
    node: NodeRow | None = graph.nodes[0]
    shape = came(graph.nodes[0]) or ()
    while not shape and node is not None and node.name.startswith(("Mean", "Sum")):
        shape = gave(node, 0) or ()
        node = _only(graph, node)
    return math.prod(shape)
