"""Steps so small that a whole run of them moves nothing, though gradients come and none is clipped.

Note [Creeping]
Of an optimizer that multiplies gradients by its rate, all steps together are at most the largest
one times their number. Where that is next to nothing of what it moves, and the loss is what it was,
no step had an effect, whether the rate is too small or the loss was made so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import number
from agviz.analysis.median import median
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_STEPS: Final = 16
"""At least; and so many measured ones, and losses at both ends, as ``_LEAST``."""
_LEAST: Final = 3
_MOVED: Final = 2e-5
"""Of the norm of all that is measured, by all steps together."""
_STAYS: Final = 0.3
"""Of the first losses, by which the last ones may differ."""


def creeping(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers whose steps are too small to have an effect. Note [Creeping]."""
    losses = [run.losses[task] for task in run.passes.ids if task in run.losses]
    if len(losses) < _STEPS:
        return
    first, last = median(losses[:_LEAST]), median(losses[-_LEAST:])
    for each in run.optimizers:
        samples = [taken.sample for taken in each.steps if taken.sample]
        rates = [taken.fact.most_rate or 0.0 for taken in each.steps]
        is_plain = each.is_torchs and not each.is_normalising and len(samples) >= _LEAST
        if not is_plain or len(each.steps) < _STEPS or not min(rates):
            continue
        whole = math.hypot(*(row.norm or 0.0 for row in samples[0])) or math.inf
        moved = len(each.steps) / whole
        moved *= max(math.hypot(*(row.change or 0.0 for row in sample)) for sample in samples)
        gradient = max(math.hypot(*(row.gradient or 0.0 for row in sample)) for sample in samples)
        if not 0 < moved <= _MOVED or abs(last - first) > _STAYS * abs(first):
            continue
        yield StepFinding(
            kind="too slow",
            heading=f"all steps of {each.name} together move next to nothing",
            frame=each.made,
            paragraph=(
                f"{len(each.steps):,} steps with a learning rate of {number(max(rates))}, of"
                f" gradients with a norm of {number(gradient)} at most, move parameters by"
                f" {moved:.1g} of their norm in all, and the loss stays ({number(first)} at first,"
                f" {number(last)} in the end). Take a larger learning rate, or look at what makes"
                " the loss, and so its gradients, small."
            ),
        )
