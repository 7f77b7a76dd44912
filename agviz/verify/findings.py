"""What comes of comparing: one finding for each backward pass. Plain data, no tensors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

KEPT_FINDINGS = 1_000
"""Passes that are kept one by one; beyond that only those that are not equal are."""


class ComparisonOutcome(StrEnum):
    """How a pass came out."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_COMPARABLE = "not comparable"
    """It can't be run twice with the same result, not even on one engine."""
    NOT_COMPARED = "not compared"
    """It ran once, on torch's engine."""


@dataclass(frozen=True)
class PassDifference:
    """The first difference of its kind in a pass."""

    kind: str
    """``gradient``, ``order`` or ``exception``."""
    where: str
    """Which parameter, result or call, and which element or position."""
    native: str
    agviz: str
    note: str = ""
    """What else differs."""

    def described(self, native: str = "torch", agviz: str = "agviz") -> str:
        """In words, where the two runs go by these names."""
        note = f" ({self.note})" if self.note else ""
        return f"{self.where}: {native} {self.native}, {agviz} {self.agviz}{note}"


@dataclass
class PassComparison:
    """One backward pass, its reentrant calls included."""

    number: int
    """Position among the passes of the program, from 0."""
    call: str
    """``backward`` or ``grad``."""
    place: str
    """File and line of the program that called it."""
    outcome: ComparisonOutcome
    nodes: int = 0
    reentrant: int = 0
    gradients: int = 0
    """Tensors that were compared."""
    hooks: int = 0
    """Calls of hooks in one run, as far as they are counted one by one."""
    order_compared: bool = True
    raised: str = ""
    """The exception that both engines raised."""
    reason: str = ""
    """Why it is not comparable, or was not compared."""
    differences: list[PassDifference] = field(default_factory=list)


class ComparisonReport:
    """All passes of a program: counts of everything, and the findings worth keeping."""

    def __init__(self) -> None:
        self.kept: list[PassComparison] = []
        self.outcomes: Counter[ComparisonOutcome] = Counter()
        self.kinds: Counter[str] = Counter()
        """In how many passes there was a difference of each kind."""
        self.passes = 0
        self.reentrant = 0
        self.gradients = 0
        self.hooks = 0
        self.order_compared = 0
        self.raised = 0

    def add(self, finding: PassComparison) -> None:
        """Count ``finding``, and keep it if it is one of the first or is not equal."""
        self.passes += 1
        self.outcomes[finding.outcome] += 1
        self.kinds.update({difference.kind for difference in finding.differences})
        self.reentrant += finding.reentrant
        if finding.outcome in {ComparisonOutcome.EQUAL, ComparisonOutcome.DIFFERENT}:
            self.gradients += finding.gradients
            self.order_compared += finding.order_compared
            self.raised += bool(finding.raised)
            self.hooks += finding.hooks
        if len(self.kept) < KEPT_FINDINGS or finding.outcome is ComparisonOutcome.DIFFERENT:
            self.kept.append(finding)

    @property
    def compared(self) -> int:
        """Passes that ran on both engines and could be compared."""
        return self.outcomes[ComparisonOutcome.EQUAL] + self.outcomes[ComparisonOutcome.DIFFERENT]

    @property
    def first_difference(self) -> PassComparison | None:
        """The first pass that came out differently."""
        return next((f for f in self.kept if f.outcome is ComparisonOutcome.DIFFERENT), None)
