"""A step that moves parameters far beyond themselves, after which a pass is not finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import number
from agviz.analysis.steps.exploding import explosion
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import BEYOND, clips, used_up

if TYPE_CHECKING:
    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame

_LEAP: Final = 10.0
"""Times the norm of the parameters: so far no step goes that is meant to."""
_SOON: Final = 8
"""Passes from such a step to the first one that is not finite."""


def leap(run: RunSteps) -> StepFinding | None:
    """A step that moved parameters far beyond themselves, after which a pass is not finite."""
    if run.first_wrong is None:
        return None
    after_wrong = len(run.passes.after(run.first_wrong))
    for each in run.optimizers:
        for taken in each.steps:
            if taken.graph_task >= run.first_wrong:
                break
            if len(run.passes.after(taken.graph_task)) - after_wrong > _SOON:
                continue  # what breaks long after it may well have another cause
            known = [row for row in taken.sample if row.norm is not None and row.change is not None]
            norm = math.hypot(*(row.norm or 0.0 for row in known))
            change = math.hypot(*(row.change or 0.0 for row in known))
            if not norm or change < _LEAP * norm:
                continue
            gradient = math.hypot(*(row.gradient or 0.0 for row in known))
            if not gradient:  # it follows something else, of which the rate is not the measure
                continue
            rate = taken.fact.most_rate
            at = "" if rate is None else f" (learning rate {number(rate)})"
            far = f"a step of {each.name}{at} changed parameters by {number(change / norm)} times"
            clip = _clip_of_nothing(run, each, gradient)
            if clip is None and not each.is_normalising:
                then = (
                    f"so that {far} their norm, and in backward pass {run.first_wrong} the loss or"
                    " its gradients are not finite"
                )
                exploded = explosion(run, each, taken.graph_task, gradient, then)
                if exploded is not None:
                    return exploded.finding
            return StepFinding(
                kind="leaps",
                heading=f"{far} their norm",
                frame=clip or each.made,
                paragraph=(
                    f"Step {taken.number} of {each.name} moved parameters whose norm was"
                    f" {number(norm)} by {number(change)}; their gradient was {number(gradient)}."
                    f" In backward pass {run.first_wrong} the loss or its gradients are not finite:"
                    " what overflows there is what such a step leads to. Take a smaller learning"
                    f" rate, {_remedy(run, each, gradient)}"
                ),
                first_pass=run.first_wrong,
            )
    return None


def _remedy(run: RunSteps, each: Stepping, gradient: float) -> str:
    """What to do about a gradient, besides a smaller rate, in the second half of a sentence."""
    lines = clips(run.trace, each.optimizer.stepped)
    if len(lines) == 1 and gradient > BEYOND * lines[0][1]:
        frame, limit = lines[0]
        if (gone := used_up(run.trace, frame)) is not None:
            return (
                f"or have line {frame.line} clip gradients: it is given {gone.name}, an iterator"
                f" that line {gone.taken} has used up, so that it clips nothing. Make it a list in"
                f" line {gone.made}."
            )
        return (
            f"or look at line {frame.line}, where gradients are clipped to {number(limit)}: this"
            " one was not. The order is zero_grad, backward, clip_grad_norm_, step."
        )
    return "or clip the gradients if it is they that are too large."


def _clip_of_nothing(run: RunSteps, each: Stepping, gradient: float) -> Frame | None:
    """The line that is to clip a gradient, and is given no parameters; None: there is none."""
    lines = clips(run.trace, each.optimizer.stepped)
    if len(lines) != 1 or gradient <= BEYOND * lines[0][1]:
        return None
    return lines[0][0] if used_up(run.trace, lines[0][0]) is not None else None
