"""Schedules that are made for another number of steps than they are stepped.

A cycle whose optimizer steps many times for each of the scheduler's, and that only ever rises, has
not come to its end with the run; a half cosine that comes up again has gone beyond its own.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import calls, is_schedule, made_at
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps

_LEAST: Final = 3
"""Changes of the rate from which a rule is drawn."""
_RARELY: Final = 4
"""Steps of the optimizer for each of the scheduler: it is stepped by epochs, or the like."""
_FALLEN: Final = 0.1
_RISEN: Final = 0.9
"""Of the largest rate: from below the one to above the other is once up again."""
_AGAIN: Final = 2


def horizons(run: RunSteps) -> Iterator[StepFinding]:
    """Schedules of one cycle that end in the warm-up, and half cosines that come up again."""
    for each in run.optimizers:
        rates = [taken.fact.most_rate for taken in each.steps]
        known = [rate for rate in rates if rate is not None]
        lines = calls(run.trace, each.stepped, is_schedule)
        made = made_at(run.trace, lines[0]) if len(lines) == 1 else None
        if made is None or len(known) < len(rates):
            continue
        changes = [b - a for a, b in itertools.pairwise(known) if a != b]
        often, rarely = plural(len(known), "step"), f"{len(changes):,} times"
        heading = paragraph = ""
        if "OneCycleLR(" in made.source and _only_rises(changes, len(known)):
            heading = f"the learning rate of {each.name} never gets beyond its warm-up"
            paragraph = (
                f"In {often} of {each.name} the rate changed {rarely} only, and only rose, from"
                f" {number(known[0])} to {number(known[-1])}: one cycle would have come down again"
                f" at its end. The scheduler made at {made} counts its own steps, and is stepped"
                " once for many batches, perhaps once an epoch, though made for the number of"
                " batches. Call its step() after each step of the optimizer, or give it the number"
                " of epochs as total_steps."
            )
        elif "CosineAnnealingLR(" in made.source and (again := _rises_again(known)) >= _AGAIN:
            heading = f"the learning rate of {each.name} goes down and up {again:,} times"
            paragraph = (
                f"Within {often} of {each.name} the rate fell to a tenth and rose again"
                f" {again:,} times: the half cosine of the scheduler made at {made} is over after"
                " T_max of its own steps, and then comes back. It is stepped more often than T_max"
                " is made for, perhaps after each batch: step it once an epoch, or take the number"
                " of all batches for T_max."
            )
        if paragraph:
            yield StepFinding(kind="horizon", heading=heading, frame=lines[0], paragraph=paragraph)


def _only_rises(changes: Sequence[float], steps: int) -> bool:
    is_rare = len(changes) >= _LEAST and len(changes) * _RARELY <= steps
    return is_rare and min(changes) > 0


def _rises_again(rates: Sequence[float]) -> int:
    """How often a rate came up again after it had fallen."""
    peak, count, is_down = max(rates), 0, False
    for rate in rates:
        if is_down and rate > _RISEN * peak:
            count, is_down = count + 1, False
        is_down = is_down or rate < _FALLEN * peak
    return count
