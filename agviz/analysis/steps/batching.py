"""Numbers of a whole batch that are taken for those of each sample.

Note [What shows that a sum is over samples]
A sum of ``[64, 8]`` is one number, and broadcasts where one for each of 64 samples is added. What
is summed is of the same samples if both were computed of one and the same tensor, parameters
aside: a penalty of weights was not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.pass_graph import PassGraph, came, gave

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import NodeRow

_MOST_NODES: Final = 20_000
_PASSES: Final = 2
"""Those of a generator and of a discriminator, say."""
_LEAST: Final = 8
"""Samples: the factor by which one term counts too much."""
_LEAST_SHARE: Final = 0.1
"""Of the gradient that comes to a mean, what comes to the sum beside it."""
_ADDING: Final = ("AddBackward", "SubBackward")
_SUMMING: Final = ("SumBackward0",)
_MEANS: Final = ("BinaryCrossEntropy", "Huber", "Mean", "Mse", "NllLoss", "SmoothL1Loss")
_NORMS: Final = ("NormBackward", "LinalgVectorNormBackward")
_EVEN: Final = ("AbsBackward", "PowBackward")
_MEAN: Final = ("MeanBackward0", "SumBackward0")
_SUB: Final = ("RsubBackward", "SubBackward")
_LAYERS: Final = ("Addmm", "Bmm", "Convolution", "Mm", "NativeLayerNorm", "NativeBatchNorm")


def of_whole_batch(run: RunSteps) -> Iterator[StepFinding]:
    """Sums and norms over all samples of the last passes, where those of each are meant."""
    for task in run.passes[: -_PASSES - 1 : -1]:
        if task.nodes > _MOST_NODES:
            continue
        graph = PassGraph(run, task.id)
        for looked_for in _sum_for_each, _sum_beside_mean, _norm_of_all, _mean_before_square:
            found = looked_for(graph)
            if found is not None:
                yield found
                return


def _sum_for_each(graph: PassGraph) -> StepFinding | None:
    for node in graph.nodes:
        samples = came(node)
        edges = graph.below.get(node.index, [])
        if not node.name.startswith(_ADDING) or not samples or len(samples) != 1 or len(edges) != 2:
            continue
        one, other = sorted(edges, key=lambda edge: len(gave(node, edge.output) or ()))
        if gave(node, one.output) != () or gave(node, other.output) != samples:
            continue
        known = graph.computed_of(other.consumer)
        for total in graph.scalars_below(one.consumer):
            shape = gave(total, 0) or ()
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


def _sum_beside_mean(graph: PassGraph) -> StepFinding | None:
    if not graph.nodes or came(graph.nodes[0]) not in {(), None}:
        return None
    terms = list(graph.scalars_below(0))
    means = [term for term in terms if term.name.startswith(_MEANS)]
    for total in terms:
        shape = gave(total, 0) or ()
        if not total.name.startswith(_SUMMING) or not shape or shape[0] < _LEAST:
            continue
        for mean in means:
            over = gave(mean, 0) or ()
            share = graph.weight(total), graph.weight(mean)
            is_equal = over[:1] == shape[:1] and min(share) > 0
            if not is_equal or share[0] < _LEAST_SHARE * share[1]:
                continue
            if _is_divided(graph, total, shape[0]):  # as reduction="batchmean" does
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


def _is_divided(graph: PassGraph, total: NodeRow, samples: int) -> bool:
    """Whether a sum is divided by the number of samples."""
    return any(
        parent.name.startswith("DivBackward")
        and math.isclose(graph.weight(total) * samples, graph.weight(parent), rel_tol=1e-3)
        for parent in (graph.nodes[edge.producer] for edge in graph.above.get(total.index, ()))
    )


def _norm_of_all(graph: PassGraph) -> StepFinding | None:
    counted = {
        shape[0]
        for node in graph.nodes
        if node.name.startswith(_MEANS) and came(node) in {(), None}
        if (shape := gave(node, 0) or ())
    }
    for node in graph.nodes:
        edges = graph.below.get(node.index, [])
        if not node.name.startswith("DivBackward") or len(edges) != 2:
            continue
        norm = graph.nodes[edges[1].consumer]
        normed = gave(norm, 0) or ()
        if not norm.name.startswith(_NORMS) or came(norm) != () or len(normed) != 2:
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


def _mean_before_square(graph: PassGraph) -> StepFinding | None:
    if not graph.nodes or came(graph.nodes[0]) not in {(), None}:
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
    shape = gave(way[1], 0) or ()
    others = graph.above.get(way[2].index, [])
    if not shape or shape[0] < _LEAST or len(graph.below.get(way[2].index, ())) != 1:
        return None
    if len(others) != 1 or gave(way[2], 0) != shape:
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
