"""Mixtures whose likelihood has no bound: a scale that nothing keeps from 0 narrows onto samples.

Note [What shows a scale]
The logarithm of a density has a distance divided by a scale, squared, and takes away the logarithm
of the scale. So an exponential, or a softplus, leads to a product or quotient beside a square, and
it or what it is computed of leads to a difference; above is the logarithm of the sum of a mixture.
What is clamped, squashed or gets a number added is bounded. By how much the division makes
gradients larger is measured: by the largest element that comes and the largest that goes, which is
no more than the inverse of the smallest scale.

Note [What shows that it harms]
A density of sharp data narrows, too, and is right. Here the loss has fallen below 0, the gradient
of the leaves has leapt up with what divides, and the loss has lost again half of what was won.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.measures import magnitude, number
from agviz.analysis.median import median
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.pass_graph import PassGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import EdgeRow, GraphTaskRow, NodeRow

_LEAST_PASSES: Final = 24
_SAMPLED: Final = 160
"""Passes that are read, evenly spread."""
_FIRST: Final = 6
"""Of those: what the others are compared with."""
_MOST_NODES: Final = 2_000
_NARROWER: Final = 20.0
"""Times that the division makes gradients larger than it did."""
_LEAPS: Final = 100.0
"""Times the norm of gradients in the first passes."""
_LOST: Final = 0.5
"""Of what the loss had fallen."""
_MOST_DEEP: Final = 8
_SCALES: Final = ("Exp", "Softplus")
_BOUNDED: Final = (
    *("Clamp", "Elu", "Hardtanh", "Logaddexp", "Maximum", "Relu", "Sigmoid", "Softplus", "Tanh"),
    "Threshold",
)
_PASSING: Final = ("Expand", "Mul", "Neg", "Repeat", "Squeeze", "Unsqueeze", "View")
"""What makes another number of each, or none."""
_POWERS: Final = (*_PASSING, "Pow", "Reciprocal", "Rsqrt")
_LOGARITHMS: Final = (*_PASSING, "Log", "Sum")
_MIXING: Final = (*_PASSING, "Add", "Index", "Select", "Slice", "Split", "Sub")
_SUMS: Final = ("AddBackward", "RsubBackward", "SubBackward")
_SQUARES: Final = ("MulBackward", "PowBackward")
_OF_MIXTURES: Final = ("Logaddexp", "LogBackward", "Logsumexp")
_DIVIDING: Final = ("DivBackward", "MulBackward")


class _Scaled(NamedTuple):
    """The division of a distance by a scale."""

    scale: NodeRow
    divided: NodeRow
    output: int
    """Which of its outputs goes to the distance."""


def collapsing(run: RunSteps) -> Iterator[StepFinding]:
    """A scale that narrows without bound. Note [What shows that it harms]."""
    passes = run.passes
    if len(passes) < _LEAST_PASSES or run.first_wrong is not None:
        return
    last, losses = passes[-1], [run.losses.get(each, math.nan) for each in passes.ids]
    least, first = min(losses), median(losses[:_FIRST])
    won = first - least if least < 0 < first else math.inf
    if not max(losses[losses.index(least) :]) >= least + _LOST * won or last.nodes > _MOST_NODES:
        return
    scaled = list(_scaled(PassGraph(run, last.id)))
    step = max(len(passes) // _SAMPLED, 1)
    read = [*passes[:_FIRST], *passes[_FIRST::step]] if scaled else []
    norms = [math.hypot(*(row.norm for row in run.norms(task))) for task in read]
    if not scaled or max(norms) < _LEAPS * median(norms[:_FIRST]):
        return
    for one in scaled:
        times = [_times(run, task, last, one) for task in read]
        began = median(times[:_FIRST])
        if not 0 < _NARROWER * began <= max(times):
            continue
        yield StepFinding(
            kind="collapses",
            heading="a scale of a mixture collapses: its likelihood has no bound",
            frame=one.scale.frame,
            paragraph=(
                "Nothing keeps this scale from 0. Dividing by it made gradients"
                f" {number(began)} times as large at first, up to {number(max(times))} times"
                f" later; their norm grew from {number(median(norms[:_FIRST]))} to"
                f" {number(max(norms))}, and the loss fell to {number(least)} and leapt up. On"
                " samples that are nearly alike a component's density grows without end as its"
                " scale collapses. Give the scale a lower bound (clamp, or softplus(...) + 1e-2)."
            ),
        )
        return


def _scaled(graph: PassGraph) -> Iterator[_Scaled]:
    """Divisions by scales that nothing bounds. Note [What shows a scale]."""
    for scale in graph.nodes:
        if not scale.name.startswith(_SCALES) or _is_bounded(graph, scale):
            continue
        if not _is_taken_away(graph, scale):
            continue
        for edge in _leading(graph, scale, _POWERS):
            node = graph.nodes[edge.producer]
            others = [each for each in graph.below[node.index] if each.output != edge.output]
            if not node.name.startswith(_DIVIDING) or len(others) != 1:
                continue
            around = [graph.nodes[each.producer] for each in graph.above.get(node.index, ())]
            distance = graph.nodes[others[0].consumer]
            around += [distance, *_below(graph, distance, ("Neg",))[:1]]
            is_square = any(each.name.startswith(_SQUARES) for each in around)
            if is_square and _is_mixed(graph, node):
                yield _Scaled(scale, node, others[0].output)


def _is_mixed(graph: PassGraph, node: NodeRow) -> bool:
    """Whether the logarithm of a sum is computed of what a node's function gave."""
    waiting, seen = [node.index], {node.index}
    while waiting:
        for edge in graph.above.get(waiting.pop(), ()):
            if graph.nodes[edge.producer].name.startswith(_OF_MIXTURES):
                return True
            if edge.producer not in seen:
                seen.add(edge.producer)
                waiting.append(edge.producer)
    return False


def _below(graph: PassGraph, node: NodeRow, through: tuple[str, ...]) -> list[NodeRow]:
    """The nodes that one leads to, each to no other, until one has another name; that as well."""
    found: list[NodeRow] = []
    while len(found) < _MOST_DEEP:
        below = {edge.consumer for edge in graph.below.get(node.index, ())}
        if len(below) != 1:
            return found
        node = graph.nodes[below.pop()]
        found.append(node)
        if not node.name.startswith(through):
            return found
    return found


def _is_bounded(graph: PassGraph, scale: NodeRow) -> bool:
    return any(node.name.startswith(_BOUNDED) for node in _below(graph, scale, _MIXING))


def _leading(graph: PassGraph, node: NodeRow, through: tuple[str, ...]) -> Iterator[EdgeRow]:
    """The edges by which nodes lead to one, through nodes of some names."""
    waiting, seen = [(node.index, 0)], set[int]()
    while waiting:
        index, depth = waiting.pop()
        for edge in graph.above.get(index, ()):
            yield edge
            above = graph.nodes[edge.producer]
            is_alone = len(graph.below.get(above.index, ())) == 1
            is_way = is_alone and above.name.startswith(through) and depth < _MOST_DEEP
            if is_way and above.index not in seen:
                seen.add(above.index)
                waiting.append((above.index, depth + 1))


def _is_taken_away(graph: PassGraph, scale: NodeRow) -> bool:
    """Whether the logarithm of a scale, or what it is the exponential of, is in a difference."""
    logs = [
        graph.nodes[edge.producer]
        for edge in _leading(graph, scale, _POWERS)
        if graph.nodes[edge.producer].name.startswith("Log")
    ]
    if scale.name.startswith("Exp"):
        logs += _below(graph, scale, _PASSING)
    return any(
        graph.nodes[edge.producer].name.startswith(_SUMS)
        for node in logs
        for edge in _leading(graph, node, _LOGARITHMS)
    )


def _times(run: RunSteps, task: GraphTaskRow, last: GraphTaskRow, one: _Scaled) -> float:
    """How many times as large a division made the largest element; 0: that is not known."""
    if task.nodes != last.nodes:
        return 0.0
    flow, node = GradientFlow(run.trace, task.id), one.divided
    if flow.nodes[node.index].name != node.name:
        return 0.0
    came, went = flow.input(node.index, 0)[1], flow.output(node.index, one.output)[1]
    return magnitude(went) / magnitude(came) if magnitude(came) else 0.0
