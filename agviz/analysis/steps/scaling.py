"""Steps of several optimizers, of which the loss scale is taken out of some gradients only.

Note [Which are still scaled]
Clipping takes the same part of all gradients: the norm to which it clips over the norm that it
found. Whose gradients were scaled then is told by the numbers: only if just these are taken as they
came, and the others unscaled, does each step give the same norm.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import BEYOND, calls, clips, uses_gradients
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping, TakenStep
    from agviz.traces.rows import Frame

_LEAST: Final = 3
_MOST_STEPS: Final = 24
_SAME: Final = 1.03
"""Times as large at most as what is the same but for rounding, of bfloat16, too."""
_FURTHER: Final = 10.0
"""Times as far apart as norms to which gradients are clipped, where gradients have other norms."""
_ROUNDING: Final = 1e-3
SHRUNK: Final = 1e-3
"""Of the gradient that a pass computed, where little of it reaches the step."""
_BEYOND_ALL: Final = 1.1
"""Times what the norms of all parts of a gradient add up to: no sum of them is as large."""
_LEAST_SCALE: Final = 1024.0
"""A smaller factor may be the weight of a loss."""


def stepped_while_scaled(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that step on what backward computed of a scaled loss, where nobody unscales it."""
    guarded = {step.number for step in run.taken_at.values() if step.is_guarded}
    left = [list(left_at_steps(run, each)) for each in run.optimizers]
    is_unscaled = any(
        max(parts) < _SAME for rows in left for parts, _, scale, _ in rows if scale > 1
    )
    for each, rows in zip(run.optimizers, left, strict=True):
        # A GradScaler's scale is a power of 2.
        is_whole = len(rows) >= _LEAST and all(
            max(parts) <= _SAME * scale <= _SAME**2 * min(parts)
            and scale >= _LEAST_SCALE
            and math.frexp(scale)[0] == 0.5
            for parts, _, scale, _ in rows
        )
        if not (is_whole and each.is_torchs) or guarded & {taken.number for taken in each.steps}:
            continue
        made = calls(run.trace, each.stepped, lambda _, name: name.endswith("GradScaler"))
        if not (made or is_unscaled):
            continue  # a factor that is meant, as by who scales the rate to it
        yield StepFinding(
            kind="still scaled",
            heading=f"{each.name} steps on gradients that are still multiplied by the loss scale",
            frame=each.stepped,
            paragraph=(
                f"The loss is multiplied by {number(rows[0][2])} before backward, and at each step"
                f" of {each.name} that was measured its gradients were just what backward had"
                " computed, that factor included. Call scaler.step(optimizer) in place of"
                " optimizer.step(): it unscales them, and skips the step where they overflowed."
            ),
        )


def clipped_while_scaled(
    run: RunSteps, each: Stepping, lines: Sequence[Frame], *, is_told: bool
) -> StepFinding | None:
    """That gradients had the norm to which they are clipped while all, or some, were still scaled.

    Once they are unscaled, that whole norm is left at the step, not the scale's part of it. Note
    [Which are still scaled]. It is told where lines of the program unscale before they clip.
    """
    if not lines:
        return None
    limits = [limit for _, limit in clips(run.trace, each.optimizer.stepped)]
    rows = [
        (max(parts), known, scale)
        for parts, known, scale, _ in left_at_steps(run, each)
        # Clipping takes the same part of all.
        if scale > 1 and max(parts) < min(1 / BEYOND, _SAME * min(parts))
    ]
    right = [math.hypot(*known.values()) / scale for _, known, scale in rows]
    for late in (None, *run.optimizers):
        held = None if late is None else {row.name for row in late.held if row.name}
        norms = [_norm(known, held, scale) for _, known, scale in rows]
        bounds = [part * norm for (part, *_), norm in zip(rows, norms, strict=True)]
        if len(rows) < _LEAST or max(bounds) >= _SAME * min(bounds):
            continue
        scale = rows[0][2]
        is_given = any(math.isclose(bounds[0], limit, rel_tol=_SAME - 1) for limit in limits)
        # Of another number, or none in the text, one so small as what is left is meant nowhere.
        is_tiny = bounds[0] < SHRUNK * scale and not is_told
        is_some = right[0] * _SAME < norms[0] < right[0] * scale / _SAME
        # Of a norm that is unscaled, another part would be left at each step.
        others = (
            right if late is None else [row[0] * one for row, one in zip(rows, right, strict=True)]
        )
        is_only = (is_tiny or late is not None) and _varies_more(others, bounds)
        if not (is_some or late is None) or not (is_given or is_only):
            continue
        made = "" if late is None or late.made is None else f" (made in line {late.made.line})"
        whose = "they" if late is None else f"those of {late.name}{made}"
        inside = "them" if late is None else f"what {late.name} holds"
        return StepFinding(
            kind="clipped",
            heading=f"gradients are clipped while {whose} are still scaled",
            frame=lines[0] if len(lines) == 1 else each.stepped,
            paragraph=(
                f"The loss is multiplied by {number(scale)} before backward. At each of"
                f" {plural(len(rows), 'step')} of {each.name} that were measured, the gradients had"
                f" been made smaller, to a norm of {bounds[0]:.3g} in all, while that factor was"
                f" still in {inside}. Unscaled, the norm was {right[0]:.2g}, of which the step got"
                f" {rows[0][0] * right[0]:.2g}. Call scaler.unscale_(optimizer) for each optimizer"
                " before clip_grad_norm_."
            ),
        )
    return None


def unscaled_too_early(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that find more than all passes before a step made, the loss scale taken out."""
    if run.trace.collectives():  # gradients of other ranks are among what is found
        return
    for each in run.optimizers:
        lines = calls(run.trace, each.stepped, lambda _, name: name.endswith(".unscale_"))
        if len(lines) != 1 or uses_gradients(run.trace, each.stepped):
            continue
        beyond = [
            one
            for last, taken in itertools.pairwise([None, *each.steps[:_MOST_STEPS]])
            if taken is not None and (one := _beyond(run, each, last, taken)) is not None
            if one[0] >= _BEYOND_ALL
        ]
        if len(beyond) < _LEAST:
            continue
        times, scale, count = max(beyond)
        yield StepFinding(
            kind="still scaled",
            heading="gradients are unscaled before the last backward that adds to them",
            frame=lines[0],
            paragraph=(
                f"The loss is multiplied by {number(scale)} before each of the {count} backward"
                f" passes that a step of {each.name} follows. With that factor taken out,"
                f" {plural(len(beyond), 'step')} found a larger gradient than all these passes"
                f" together can have made, up to {times:.2g} times: a part of it is still scaled."
                " Call unscale_ once, after the last backward and before clip_grad_norm_ and step."
            ),
        )


def _beyond(
    run: RunSteps, each: Stepping, last: TakenStep | None, taken: TakenStep
) -> tuple[float, float, int] | None:
    """How many times as large a gradient was as all passes before a step can have made it.

    With their scale, and their number; None: there is one pass, or they have no one scale.
    """
    tasks = run.passes_between(last, taken)
    if not taken.sample or not 2 <= len(tasks) <= _MOST_STEPS or run.adds(each, tasks[0].id):
        return None
    scales = {run.scale(task) for task in tasks}
    scale = scales.pop()
    if scales or scale < _LEAST_SCALE or math.frexp(scale)[0] != 0.5:
        return None
    sums: Counter[str] = Counter()
    for task in tasks:
        sums.update(run.arrived(task))
    shares = [
        row.gradient * scale / sums[row.parameter]
        for row in taken.sample
        if row.gradient and sums[row.parameter]
    ]
    return (max(shares), scale, len(tasks)) if shares else None


def _varies_more(others: Sequence[float], bounds: Sequence[float]) -> bool:
    """Whether numbers are further apart than others that are the same but for rounding."""
    apart, same = (max(each) / min(each) - 1 for each in (others, bounds))
    return apart > max(_FURTHER * same, _ROUNDING)


def _norm(known: dict[str, float], scaled: set[str] | None, scale: float) -> float:
    """The norm of all gradients, where some are scaled; None: all are."""
    parts = known.items()
    return math.hypot(
        *(norm / (1 if scaled is None or name in scaled else scale) for name, norm in parts)
    )


def left_at_steps(
    run: RunSteps, each: Stepping
) -> Iterator[tuple[list[float], dict[str, float], float, int]]:
    """What is left of gradients at steps, each over what it is without scale; and of what.

    The latter are the norms of all gradients after the pass before, its loss scale, and the pass.
    """
    last = None
    for taken in each.steps[:_MOST_STEPS]:
        task = run.pass_before(taken, last)
        last = taken
        if task is None:
            continue
        scale = run.scale(task)
        known = {row.parameter: row.norm for row in run.norms(task) if row.norm > 0}
        parts = [
            row.gradient * scale / known[row.parameter]
            for row in taken.sample
            if row.gradient and row.parameter in known
        ]
        if parts:
            yield parts, known, scale, task.id
