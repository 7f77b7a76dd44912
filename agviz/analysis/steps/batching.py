"""Numbers of a whole batch that are taken for those of each sample.

Note [What shows that a sum is over samples]
A sum of ``[64, 8]`` is one number, and broadcasts where one for each of 64 samples is added. What
is summed is of the same samples if both were computed of one and the same tensor, parameters
aside: a penalty of weights was not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import magnitude
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import EdgeRow, NodeRow

_MOST_NODES: Final = 20_000
_PASSES: Final = 2
"""Those of a generator and of a discriminator, say."""
_LEAST: Final = 8
"""Samples: the factor by which one term counts too much."""
_LEAST_SHARE: Final = 0.1
"""Of the gradient that comes to a mean, what comes to the sum beside it."""
_ADDING: Final = ("AddBackward", "SubBackward")
_PASSING: Final = ("Add", "Div", "Mul", "Neg", "Sub")
_SUMMING: Final = ("SumBackward0",)
_MEANS: Final = ("BinaryCrossEntropy", "Huber", "Mean", "Mse", "NllLoss", "SmoothL1Loss")
_NORMS: Final = ("NormBackward", "LinalgVectorNormBackward")
_EVEN: Final = ("AbsBackward", "PowBackward")
_MEAN: Final = ("MeanBackward0", "SumBackward0")
_SUB: Final = ("RsubBackward", "SubBackward")
_LAYERS: Final = ("Addmm", "Bmm", "Convolution", "Mm", "NativeLayerNorm", "NativeBatchNorm")


class _Graph:
    """The nodes of a pass, what each leads to, and what leads to it."""

    def __init__(self, run: RunSteps, graph_task: int) -> None:
        self.run = run
        self.graph_task = graph_task
        self.nodes: Sequence[NodeRow] = run.trace.nodes(graph_task)
        self.below: dict[int, list[EdgeRow]] = {}
        self.above: dict[int, list[EdgeRow]] = {}
        for edge in run.trace.edges(graph_task):
            self.below.setdefault(edge.producer, []).append(edge)
            self.above.setdefault(edge.consumer, []).append(edge)

    def computed_of(self, node: int) -> set[int]:
        """The node and all nodes below it, but parameters."""
        found, waiting = {node}, [node]
        while waiting:
            for edge in self.below.get(waiting.pop(), ()):
                is_leaf = self.nodes[edge.consumer].name.endswith("AccumulateGrad")
                if edge.consumer not in found and not is_leaf:
                    found.add(edge.consumer)
                    waiting.append(edge.consumer)
        return found

    def scalars_below(self, node: int) -> Iterator[NodeRow]:
        """The nodes that made one number, and what of others, of which a number was computed."""
        waiting, seen = [node], set[int]()
        while waiting:
            here = self.nodes[waiting.pop()]
            if here.index in seen or _came(here) not in {(), None}:
                continue
            seen.add(here.index)
            if here.name.startswith(_PASSING):
                waiting += [edge.consumer for edge in self.below.get(here.index, ())]
            else:
                yield here

    def weight(self, node: NodeRow) -> float:
        """The gradient that came to a node that made one number; 0: it was not measured."""
        for edge in self.above.get(node.index, ()):
            for row in self.run.trace.health(self.graph_task, edge.producer):
                if (row.role, row.slot, row.numel) == ("output", edge.output, 1):
                    return magnitude(row)
        return 1.0 if not self.above.get(node.index) else 0.0


def of_whole_batch(run: RunSteps) -> Iterator[StepFinding]:
    """Sums and norms over all samples of the last passes, where those of each are meant."""
    for task in run.passes[: -_PASSES - 1 : -1]:
        if task.nodes > _MOST_NODES:
            continue
        graph = _Graph(run, task.id)
        for looked_for in _sum_for_each, _sum_beside_mean, _norm_of_all, _mean_before_square:
            found = looked_for(graph)
            if found is not None:
                yield found
                return


def _sum_for_each(graph: _Graph) -> StepFinding | None:
    for node in graph.nodes:
        samples = _came(node)
        edges = graph.below.get(node.index, [])
        if not node.name.startswith(_ADDING) or not samples or len(samples) != 1 or len(edges) != 2:
            continue
        one, other = sorted(edges, key=lambda edge: len(_gave(node, edge.output) or ()))
        if _gave(node, one.output) != () or _gave(node, other.output) != samples:
            continue
        known = graph.computed_of(other.consumer)
        for total in graph.scalars_below(one.consumer):
            shape = _gave(total, 0) or ()
            is_sum = total.name.startswith(_SUMMING) and shape[:1] == samples
            if is_sum and samples[0] >= _LEAST and known & graph.computed_of(total.index):
                return StepFinding(
                    kind="whole batch",
                    heading=f"a sum over all {samples[0]:,} samples is added to each of them",
                    frame=total.frame,
                    paragraph=(
                        f"What is summed here is {list(shape)}, of {samples[0]:,} samples, and the"
                        f" sum is one number. {node.frame or node.name} adds it to {samples[0]:,}"
                        " numbers, one for each sample: each gets the terms of all, so that this"
                        f" term and its gradient count {samples[0]:,} times as much as meant. Sum"
                        " over the other dimensions only: sum(dim=1)."
                    ),
                )
    return None


def _sum_beside_mean(graph: _Graph) -> StepFinding | None:
    if not graph.nodes or _came(graph.nodes[0]) not in {(), None}:
        return None
    terms = list(graph.scalars_below(0))
    means = [term for term in terms if term.name.startswith(_MEANS)]
    for total in terms:
        shape = _gave(total, 0) or ()
        if not total.name.startswith(_SUMMING) or not shape or shape[0] < _LEAST:
            continue
        for mean in means:
            over = _gave(mean, 0) or ()
            share = graph.weight(total), graph.weight(mean)
            is_equal = over[:1] == shape[:1] and min(share) > 0
            if not is_equal or share[0] < _LEAST_SHARE * share[1]:
                continue
            if not graph.computed_of(mean.index) & graph.computed_of(total.index):
                continue
            return StepFinding(
                kind="whole batch",
                heading="a sum over the batch is added to a mean over the same batch",
                frame=total.frame,
                paragraph=(
                    f"This term is summed over {list(shape)}; the one at {mean.frame or mean.name}"
                    f" is a mean over {list(over)}, and both are of the same {shape[0]:,} samples."
                    f" An element of the sum counts {share[0] / share[1] * math.prod(over):,.3g}"
                    " times as much as one of the mean, and more the larger the batch is. Reduce"
                    " both in the same way: sum over features, and take the mean over samples."
                ),
            )
    return None


def _norm_of_all(graph: _Graph) -> StepFinding | None:
    counted = {
        shape[0]
        for node in graph.nodes
        if node.name.startswith(_MEANS) and _came(node) in {(), None}
        if (shape := _gave(node, 0) or ())
    }
    for node in graph.nodes:
        edges = graph.below.get(node.index, [])
        if not node.name.startswith("DivBackward") or len(edges) != 2:
            continue
        norm = graph.nodes[edges[1].consumer]
        normed = _gave(norm, 0) or ()
        if not norm.name.startswith(_NORMS) or _came(norm) != () or len(normed) != 2:
            continue
        made = {edge.consumer for edge in graph.below.get(norm.index, ())}
        if made != {edges[0].consumer} or normed[0] not in counted or normed[0] < _LEAST:
            continue
        if not graph.nodes[edges[0].consumer].name.startswith(_LAYERS):
            continue
        return StepFinding(
            kind="whole batch",
            heading=f"all {normed[0]:,} samples are divided by one norm, that of the whole batch",
            frame=norm.frame,
            paragraph=(
                f"The norm is of all of {list(normed)}, and one number: no sample gets a norm of 1,"
                " each depends on all others of its batch, and what is computed of two of them is"
                f" about {normed[0]:,} times smaller than with a norm for each. Give the norm a"
                " dimension: x / x.norm(dim=-1, keepdim=True), or F.normalize(x, dim=-1)."
            ),
        )
    return None


def _mean_before_square(graph: _Graph) -> StepFinding | None:
    if not graph.nodes or _came(graph.nodes[0]) not in {(), None}:
        return None
    terms = list(graph.scalars_below(0))
    if len(terms) != 1 or not terms[0].name.startswith(_EVEN):
        return None
    way = [terms[0]]
    for begins in _MEAN, _SUB:
        below = {edge.consumer for edge in graph.below.get(way[-1].index, ())}
        node = graph.nodes[below.pop()] if len(below) == 1 else None
        if node is None or not node.name.startswith(begins):
            return None
        way.append(node)
    shape = _gave(way[1], 0) or ()
    others = graph.above.get(way[2].index, [])
    if not shape or shape[0] < _LEAST or len(graph.below.get(way[2].index, ())) != 1:
        return None
    if len(others) != 1 or _gave(way[2], 0) != shape:
        return None
    what = "squared" if way[0].name.startswith("Pow") else "made positive"
    return StepFinding(
        kind="whole batch",
        heading=f"differences are averaged first, and their mean is {what}",
        frame=way[0].frame,
        paragraph=(
            f"The {shape[0]:,} samples' differences, {list(shape)}, cancel in the mean before it is"
            f" {what}: all of them get one and the same gradient, and the loss is 0 as soon as they"
            " are right on average. What a sample's own target is no longer counts. Take the mean"
            " last: ((a - b) ** 2).mean(), (a - b).abs().mean(), or F.mse_loss."
        ),
    )


def _came(node: NodeRow) -> tuple[int, ...] | None:
    return next(iter(node.input_shapes or ()), None)


def _gave(node: NodeRow, slot: int) -> tuple[int, ...] | None:
    shapes = node.output_shapes or ()
    return shapes[slot] if slot < len(shapes) else None
