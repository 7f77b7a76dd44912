"""Steps of several optimizers, of which the loss scale is taken out of some gradients only.

Note [Which are still scaled]
Clipping takes the same part of all gradients: the norm to which it clips over the norm that it
found. Whose gradients were scaled then is told by the numbers: only if just these are taken as they
came, and the others unscaled, does each step give the same norm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import BEYOND, calls, clips, is_clip, near
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping

_LEAST: Final = 3
_MOST_STEPS: Final = 24
_SAME: Final = 1.03
"""Times as large at most as what is the same but for rounding, of bfloat16, too."""
_LEAST_SCALE: Final = 1024.0
"""A smaller factor may be the weight of a loss."""


def stepped_while_scaled(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that step on what backward computed of a scaled loss, where nobody unscales it."""
    guarded = {step.number for step in run.trace.optimizer_steps() if step.is_guarded}
    unscaled = {each.optimizer.number for each in run.optimizers if _is_left(run, each, 1.0)}
    for each in run.optimizers:
        is_guarded = any(taken.number in guarded for taken in each.steps[:_MOST_STEPS])
        if is_guarded or not each.is_torchs or not (scale := _is_left(run, each)):
            continue
        if not unscaled and not calls(run.trace, each.stepped, _makes_scaler):
            continue  # a factor that is meant, as by who scales the rate to it
        yield StepFinding(
            kind="still scaled",
            heading=f"{each.name} steps on gradients that are still multiplied by the loss scale",
            frame=each.stepped,
            paragraph=(
                f"The loss is multiplied by {number(scale)} before backward, and at each step of"
                f" {each.name} that was measured its gradients were just what backward had"
                " computed, that factor included. Call scaler.step(optimizer) in place of"
                " optimizer.step(): it unscales them, and skips the step where they overflowed."
            ),
        )


def _makes_scaler(_call: object, name: str) -> bool:
    return name.endswith("GradScaler")


def _is_left(run: RunSteps, each: Stepping, left: float = 0.0) -> float:
    """The loss scale of the first steps, where so much of it is left in gradients; 0: it is not.

    Args:
        run: its run.
        each: the optimizer.
        left: by what gradients are multiplied; 0: by all of the scale.
    """
    found = [
        # A GradScaler's is a power of 2.
        scale
        * (scale >= _LEAST_SCALE and math.frexp(scale)[0] == 0.5)
        * (max(parts) <= _SAME * (left or scale) <= _SAME**2 * min(parts))
        for parts, _, scale, _ in left_at_steps(run, each)
    ]
    return min(found) if len(found) >= _LEAST else 0.0


def clipped_while_some_scaled(run: RunSteps) -> Iterator[StepFinding]:
    """Gradients of several optimizers that are clipped together. Note [Which are still scaled]."""
    if len(run.optimizers) < 2:
        return
    lines = near(run.trace, run.optimizers[0].optimizer.stepped, is_clip)
    limits = [limit for _, limit in clips(run.trace, run.optimizers[0].optimizer.stepped)]
    for late in run.optimizers:
        held = {row.name for row in late.held if row.name}
        found = [
            (max(parts), _norm(known, set(), scale), _norm(known, held, scale), scale)
            for each in run.optimizers
            for parts, known, scale, _ in left_at_steps(run, each)
            # Clipping takes the same part of all.
            if scale > 1 and max(parts) < min(1 / BEYOND, _SAME * min(parts))
            if held & known.keys() and known.keys() - held
        ]
        if len(found) < _LEAST * len(run.optimizers):
            continue
        bounds = [left * mixed for left, _, mixed, _ in found]
        right = [left * unscaled for left, unscaled, _, _ in found]
        is_same = max(bounds) < _SAME * min(bounds)
        is_given = any(math.isclose(bounds[0], limit, rel_tol=_SAME - 1) for limit in limits)
        if not is_same or not (is_given or max(right) > _SAME**2 * min(right)):
            continue
        made = "" if late.made is None else f" (made in line {late.made.line})"
        yield StepFinding(
            kind="clipped",
            heading=f"gradients are clipped while those of {late.name}{made} are still scaled",
            frame=lines[0] if len(lines) == 1 else late.stepped,
            paragraph=(
                f"The loss is multiplied by {number(found[0][3])} before backward. In"
                f" {plural(len(found), 'step')} that were measured, gradients of several optimizers"
                f" had been clipped together, to {bounds[0]:.3g}: those that {late.name} holds with"
                f" that factor still in them, the others unscaled. Their norm was"
                f" {number(found[0][2])} so, and {found[0][0]:.1g} of each gradient was left, where"
                f" all unscaled had {found[0][1]:.2g}. Call scaler.unscale_(optimizer) for each"
                " optimizer before clip_grad_norm_."
            ),
        )
        return


def _norm(known: dict[str, float], scaled: set[str], scale: float) -> float:
    """The norm of all gradients, where some are scaled."""
    return math.hypot(*(norm if name in scaled else norm / scale for name, norm in known.items()))


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
