"""Weights without effect: of unlike micro batches that count the same, of samples after their mean.

The gradient of ``nll_loss`` has one number for each target that counts. That of a mean is what came
in, divided by their number; that of a sum is not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.measures import magnitude
from agviz.analysis.steps.finding import StepFinding
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame, GraphTaskRow

_LOSSES: Final = frozenset({"NllLossBackward0", "NllLoss2DBackward0"})
_LEAST: Final = 4.0
"""Times as many targets as in the smallest: micro batches that are cut to like sizes have less."""
_MOST_PASSES: Final = 32
"""Before a step; of one with more, nothing is said."""
_MOST_STEPS: Final = 4
"""That are looked at, the first ones."""
_MOST_NODES: Final = 20_000
_MEANS: Final = (
    *("BinaryCrossEntropy", "HuberLoss", "Mean", "MseLoss", "NllLoss", "SmoothL1Loss"),
    "SoftMarginLoss",
)
_SCALING: Final = ("Div", "Mul", "Neg")


class _Mean(NamedTuple):
    """A loss that is a mean over targets."""

    targets: int
    weight: float
    """The gradient that came to it."""
    frame: Frame | None
    """The line that made what backward was called on."""


def unequal(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers whose steps follow a mean of means over unlike numbers of targets."""
    for each in run.optimizers:
        found = _of_first_steps(run, each)
        if found is None:
            continue
        counts = [mean.targets for mean in found]
        least, most = min(counts), max(counts)
        shown = ", ".join(map(str, counts[:_MOST_STEPS]))
        more = ", …" if len(counts) > _MOST_STEPS else ""
        yield StepFinding(
            kind="weighed",
            heading=f"means over {least:,} and over {most:,} targets count the same",
            frame=found[-1].frame,
            paragraph=(
                f"Gradients of {len(counts):,} backward passes are added up before a step of"
                f" {each.name}. Their losses are means over {shown}{more} targets of equal weight,"
                f" so that a target of the smallest counts {most / least:.2g} times as much as one"
                " of the largest: that is not the gradient of the mean over all targets. Sum each"
                " loss (reduction='sum'), and divide by the number of targets of all."
            ),
        )


def _of_first_steps(run: RunSteps, each: Stepping) -> list[_Mean] | None:
    """What a step follows, of the first one of which that is unequal."""
    steps = each.steps[:_MOST_STEPS]
    for last, taken in zip([None, *steps], steps, strict=False):
        between = run.passes_between(last, taken)
        if not 2 <= len(between) <= _MOST_PASSES:
            continue
        means: list[_Mean] = []
        for task in between:
            mean = _mean(run, task)
            if mean is None or (means and not run.adds(each, task.id)):
                break
            means.append(mean)
        if len(means) == len(between) and _is_unequal(means):
            return means
    return None


def _is_unequal(means: list[_Mean]) -> bool:
    counts = [mean.targets for mean in means]
    is_alike = all(math.isclose(mean.weight, means[0].weight, rel_tol=1e-3) for mean in means)
    return is_alike and max(counts) >= _LEAST * min(counts)


def _mean(run: RunSteps, task: GraphTaskRow) -> _Mean | None:
    """The only mean over targets in a pass; None: there is none, or something else besides."""
    if task.nodes > _MOST_NODES:
        return None
    nodes = run.trace.nodes(task.id)
    losses = [node for node in nodes if node.short_name in _LOSSES]
    if len(losses) != 1:
        return None
    rows = {(row.role, row.slot): row for row in run.trace.health(task.id, losses[0].index)}
    gave = rows.get(("output", 0))
    edges = [edge for edge in run.trace.edges(task.id) if edge.consumer == losses[0].index]
    if gave is None or len(edges) != 1:
        return None
    came = [
        row
        for row in run.trace.health(task.id, edges[0].producer)
        if (row.role, row.slot) == ("output", edges[0].output) and row.numel == 1
    ]
    targets = gave.numbers - gave.zero
    weight = magnitude(came[0]) if came else 0.0
    if not targets or not math.isclose(magnitude(gave) * targets, weight, rel_tol=1e-2):
        return None
    root = nodes[0].frame if task.roots == 1 else None
    return _Mean(targets, weight, root or visible(run.trace.call_site(task.id)))


def after_mean(run: RunSteps) -> Iterator[StepFinding]:
    """A weight for each sample that is multiplied with the mean of their losses, one number."""
    task = run.passes[-1] if run.passes else None
    nodes = run.trace.nodes(task.id) if task is not None and task.nodes <= _MOST_NODES else ()
    for node in nodes:
        if not node.name.startswith("MulBackward") or node.output_shapes[:1] != ((),):
            continue
        below, edges = node, run.trace.edges_from(node.graph_task, node.index)
        while len(edges) == 1 and below.name.startswith(_SCALING) and () in below.output_shapes:
            below = nodes[edges[0].consumer]
            edges = run.trace.edges_from(node.graph_task, below.index)
        given, samples = [
            next(iter(some or ()), None) for some in (node.input_shapes, below.output_shapes)
        ]
        size = math.prod(given or ())
        above = run.trace.edges_into(node.graph_task, node.index)
        is_reduced = all(nodes[edge.producer].name.startswith(("Mean", "Sum")) for edge in above)
        is_mean = below.name.startswith(_MEANS) and below.input_shapes in {((),), None}
        if not (is_mean and is_reduced and samples and samples[0] == size > 1):
            continue
        yield StepFinding(
            kind="after the mean",
            heading=f"the weights of {size:,} samples are multiplied with the mean of all",
            frame=node.frame,
            paragraph=(
                f"The loss at {below.frame or below.name} is one number already, a mean over"
                f" {size:,} samples. Multiplied by {size:,} numbers and reduced again, it gets all"
                " of them as one factor: no sample counts more than another. Where weights of"
                " samples are meant, have the loss not reduced (reduction='none'), multiply, and"
                " take the mean then."
            ),
        )
        return
