"""Losses that are below zero though they can't be, of what they expect.

Note [What the sign proves]
Each of these is a mean or sum of numbers that are not negative where the loss is given what it
expects, with weights that are not negative either. So one value below zero, by more than rounding,
proves that it is not. A loss that more than a mean or a sum was made of is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.measures import number
from agviz.analysis.normalised_twice import normalised_twice
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

BELOW: Final = -1e-3
"""What is above may be rounding."""


class BoundedLoss(NamedTuple):
    """A loss that is not below zero; asked as a loss that is given probabilities."""

    name: str
    given: str
    """What it is given where it is."""
    proves: str

    def heading(self, _value: str) -> str:
        """What it is given."""
        return f"{self.name} is given {self.given}"

    def paragraph(self, value: str) -> str:
        """What that rests on, and what to do."""
        return f"It is {value} here, and {self.proves}"


_NLL: Final = BoundedLoss(
    "nll_loss",
    "scores that are not log-probabilities: some are above 0",
    "of log-probabilities, which are at most 0, it is never below 0. Of raw scores it is only minus"
    " that of the true class: it falls without end, and its gradient does not depend on the"
    " prediction. Apply log_softmax to the scores first, or use cross_entropy, which does so.",
)
_SHARES: Final = "targets that are not between 0 and 1"
_OF_SHARES: Final = (
    "of targets between 0 and 1 (and weights that are not negative) it is never below 0; of others"
    " it may fall without end. Bring them there: a mask of 0 and 255 by / 255, labels 1 and 2 by"
    " - 1."
)
BOUNDED: Final = {
    "BinaryCrossEntropy": BoundedLoss("binary_cross_entropy", _SHARES, _OF_SHARES),
    "BinaryCrossEntropyWithLogits": BoundedLoss(
        "binary_cross_entropy_with_logits", _SHARES, _OF_SHARES
    ),
    "NllLoss": _NLL,
    "NllLoss2D": _NLL,
}
"""By what the names of their nodes begin with."""
_REDUCING: Final = ("MeanBackward", "SumBackward")


def below_zero(run: RunSteps) -> Iterator[StepFinding]:
    """Note [What the sign proves]: the first pass whose loss is one of these and below zero."""
    first = next((task for task, loss in run.losses.items() if loss < BELOW), None)
    if first is None or first not in run.passes.ids:
        return
    made = run.trace.node(first, 0)
    if made.short_name.startswith(_REDUCING) and (below := run.trace.edges_from(first, 0)):
        made = run.trace.node(first, below[0].consumer)
    loss = BOUNDED.get(made.short_name.partition("Backward")[0])
    if loss is None or normalised_twice(run.trace) is not None:
        return
    value = number(run.losses[first])
    yield StepFinding(
        kind="below zero",
        heading=loss.heading(value),
        frame=made.frame,
        paragraph=loss.paragraph(value),
        evidence=(f"in backward pass {first}", f"node {made.index}"),
        first_pass=run.first_wrong,
    )
