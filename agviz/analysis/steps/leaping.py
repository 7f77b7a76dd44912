"""A step that moves parameters far beyond themselves, after which the loss is beyond mending."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import number
from agviz.analysis.steps.exploding import explosion
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.scales import largest_data
from agviz.analysis.steps.source_calls import BEYOND, clips, used_up

if TYPE_CHECKING:
    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame

_LEAP: Final = 10.0
"""Times the norm of the parameters: so far no step goes that is meant to."""
_SOON: Final = 8
"""Passes from such a step to the first one that is not finite."""
_BEYOND_MENDING: Final = 1e6
"""Times the largest loss before: so large is none that a good step leads to."""
_LEFT: Final = 1e3
"""Times the largest loss before are all that come after it."""
_LAST: Final = 3
"""Measured steps in which nothing reaches a weight any more."""
_LARGE: Final = 100.0
"""Data that are of next to this size are worth a word where a step goes too far."""


def leap(run: RunSteps) -> StepFinding | None:
    """A step that moved parameters far beyond themselves, and what came of it.

    A pass that is not finite, or a loss that is larger by powers of ten, and stays so.
    """
    broken = _broken(run)
    if broken is None:
        return None
    wrong, outcome = broken
    after_wrong = len(run.passes.after(wrong))
    for each in run.optimizers:
        for taken in each.steps:
            if taken.graph_task >= wrong:
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
                then = f"so that {far} their norm, and {outcome}"
                exploded = explosion(run, each, taken.graph_task, gradient, then)
                if exploded is not None:
                    return exploded.finding
            because, remedy = _data(run, taken.graph_task)
            return StepFinding(
                kind="leaps",
                heading=f"{far} their norm{because}",
                frame=clip or each.made,
                paragraph=(
                    f"Step {taken.number} of {each.name} moved parameters whose norm was"
                    f" {number(norm)} by {number(change)}; their gradient was {number(gradient)}."
                    f" {outcome[0].upper()}{outcome[1:]}: that is what such a step leads to."
                    f"{remedy} Take a smaller learning rate,"
                    f" {_remedy(run, each, gradient)}"
                ),
                first_pass=wrong,
            )
    return None


def _broken(run: RunSteps) -> tuple[int, str] | None:
    """The pass from which on nothing is to be learnt, and what it shows; None: there is none."""
    if run.first_wrong is not None:
        said = f"in backward pass {run.first_wrong} the loss or its gradients are not finite"
        return run.first_wrong, said
    known = [(each, abs(run.losses[each])) for each in run.passes.ids if each in run.losses]
    most = 0.0
    for place, (graph_task, loss) in enumerate(known):
        if 0 < most * _BEYOND_MENDING < loss:
            came_back = min(later for _, later in known[place:]) < _LEFT * most
            if came_back and not _is_lost(run):
                return None
            return graph_task, (
                f"in backward pass {graph_task} the loss is {number(loss)}, before it was"
                f" {number(most)} at most"
                + came_back
                * "; later it is small again, and weights get no gradient any more"
            )
        most = max(most, loss)
    return None


def _is_lost(run: RunSteps) -> bool:
    """Whether a weight has grown a thousandfold, and its gradient is 0 at the last measured steps.

    What made it that large lets nothing through from then on, as a ReLU of what is all below 0.
    """
    for each in run.optimizers:
        norms: dict[str, list[tuple[float, float]]] = {}
        for row in (row for taken in each.steps for row in taken.sample):
            if row.norm and row.gradient is not None:
                norms.setdefault(row.parameter, []).append((row.norm, row.gradient))
        for known in norms.values():
            last = known[-_LAST:]
            is_still = len(known) > _LAST and not any(gradient for _, gradient in last)
            if is_still and last[-1][0] > _LEFT * known[0][0]:
                return True
    return False


def _data(run: RunSteps, graph_task: int) -> tuple[str, str]:
    """Which data made gradients large, and what to do; empty: none are known to be large."""
    found = largest_data(run, graph_task)
    if found is None or found.least < _LARGE:
        return "", ""
    least = f"{number(found.least)} and more"
    return (
        f": {found.weight.parameter} is multiplied by data with values of {least}",
        (
            " Data that large make its gradient so large: bring each column to a mean of 0 and a"
            " deviation of 1."
        ),
    )


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
