"""Losses that are not multiplied by the scale which a GradScaler takes out of all gradients.

Note [Scaled in part]
Before a step, some passes have the loss scale and others have none, and all add to the same
gradients, or to others of one optimizer. What the step finds, times the scale, is no more than
what the passes left together: the scale is taken out of both, and of the loss without it next to
nothing is left. Where a pass without scale is added after ``unscale_``, the step finds it whole.
An attack may go without scale, too: its gradients are cleared before the next pass adds to them.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.measures import magnitude, number
from agviz.analysis.steps.discarding import is_added_to
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import is_set_to_zero
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping, TakenStep
    from agviz.traces.rows import GraphTaskRow, LeafNorm

_LEAST: Final = 3
"""Steps, and half of those that are looked at."""
_MOST_STEPS: Final = 24
_MOST_PASSES: Final = 24
"""Before a step."""
_SAME: Final = 1.03
"""Times as large at most as what is the same but for rounding, of bfloat16, too."""
_LEAST_SCALE: Final = 1024.0
"""A smaller factor may be the weight of a loss."""
_NEAR: Final = 16
"""Nodes from the root on, among which one may multiply by a scale."""
_PART: Final = 1 / 8
"""Of the scale: a gradient that large may have it, by whatever way."""


class _Part(NamedTuple):
    """The passes before a step."""

    scaled: GraphTaskRow
    bare: GraphTaskRow
    scale: float


def scaled_in_part(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that follow a scaled loss and one that is not. Note [Scaled in part]."""
    if run.trace.collectives():  # gradients of other ranks are among what is found
        return
    last_scales = [run.scale(task) for task in run.passes[-_MOST_PASSES:]]
    if max(last_scales, default=0.0) < _LEAST_SCALE:  # to ask it of each pass is dear
        return
    for each in run.optimizers:
        steps = list(itertools.pairwise([None, *each.steps[:_MOST_STEPS]]))
        found = [
            part
            for last, taken in steps
            if taken is not None and (part := _part(run, each, last, taken)) is not None
        ]
        if len(found) < max(_LEAST, sum(bool(taken and taken.sample) for _, taken in steps) / 2):
            continue
        scaled, bare, scale = found[0]
        line, other = (visible(run.trace.call_site(task.id)) for task in (scaled, bare))
        if line is None or other is None or line == other:
            continue
        yield StepFinding(
            kind="not scaled",
            heading=f"the loss of line {other.line} is not scaled, but its gradients are unscaled",
            frame=other,
            paragraph=(
                f"The loss of line {line.line} is multiplied by {number(scale)} before backward,"
                f" this one is not. Both lead to what {each.name} holds, and at"
                f" {plural(len(found), 'step')} that were measured, that factor was taken out of"
                f" all of .grad: of this loss, 1/{number(scale)} was left. Call"
                " scaler.scale(loss).backward() here, too, or add up both losses before."
            ),
        )


def _part(run: RunSteps, each: Stepping, last: TakenStep | None, taken: TakenStep) -> _Part | None:
    """What a step follows, where the scale is taken out of passes with and without it."""
    between = run.passes_between(last, taken)
    if not taken.sample or not 2 <= len(between) <= _MOST_PASSES:
        return None
    held = {row.name for row in each.held if row.name}
    led = [task for task in between if held & run.arrived(task).keys()]
    scales = [run.scale(task) for task in led]
    scale = max(scales, default=0.0)
    bare = [task for task, own in zip(led, scales, strict=True) if own < _LEAST_SCALE]
    scaled = [task for task, own in zip(led, scales, strict=True) if own == scale]
    if (
        not bare
        or scale < _LEAST_SCALE
        or math.frexp(scale)[0] != 0.5
        or len(bare) + len(scaled) < len(led)
        or any(_is_scaled_within(run, task, scale) for task in bare)
    ):
        return None
    after = [{row.parameter: row for row in run.norms(task)} for task in led]
    whole: dict[str, LeafNorm] = {}
    for leaves in after:
        whole |= leaves
    parts = [
        row.gradient * scale / whole[row.parameter].norm
        for row in taken.sample
        if row.gradient and row.parameter in whole and whole[row.parameter].norm > 0
    ]
    if not parts or max(parts) > _SAME:
        return None
    names = {row.parameter for row in taken.sample if row.gradient and row.parameter}
    kept = [
        task
        for place, task in enumerate(led)
        if task in bare and any(_is_kept(run, each, after[place:], name) for name in names)
    ]
    return _Part(scaled[0], kept[0], scale) if kept else None


def _is_kept(
    run: RunSteps, each: Stepping, after: Sequence[dict[str, LeafNorm]], name: str
) -> bool:
    """Whether what the first of some passes gave a parameter is there after the last of them."""
    if name not in after[0] or not after[0][name].norm > 0:
        return False
    later = [leaves[name] for leaves in after[1:] if name in leaves]
    # Zeros are added to as well.
    may_be_zeros = bool(later) and is_set_to_zero(run.trace, each.stepped)
    return not may_be_zeros and all(is_added_to(run, leaf) for leaf in later)


def _is_scaled_within(run: RunSteps, task: GraphTaskRow, scale: float) -> bool:
    """Whether a scale may be in a loss all the same, behind what was done to it afterwards."""
    waiting, seen = [0], {0}
    while waiting and len(seen) < _NEAR:
        node = waiting.pop(0)
        came = [
            magnitude(row)
            for edge in run.trace.edges_into(task.id, node)
            for row in run.trace.health(task.id, edge.producer)
            if (row.role, row.slot) == ("output", edge.output)
        ]
        for row in run.trace.health(task.id, node):
            if row.role != "output":
                continue
            times = magnitude(row) / came[0] if len(came) == 1 and came[0] else 0.0
            is_times = run.trace.name(task.id, node) == "MulBackward0" and (
                scale / _SAME < times < scale * _SAME
            )
            if is_times or magnitude(row) >= _PART * scale:
                return True
        after = {edge.consumer for edge in run.trace.edges_from(task.id, node)} - seen
        waiting += sorted(after)
        seen |= after
    return False
