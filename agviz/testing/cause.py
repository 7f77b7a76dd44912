"""What several failures have in common: the kind of a verdict and the place that it names.

A heading says of which pass and which parameter it speaks, and these differ from test to test. So
failures are the same where the kind and the line are, and only where no line is known where the
words are, but for their numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from agviz.analysis.gradients import GradientRow
    from agviz.analysis.verdict import Verdict

_OF_A_PASS: Final = re.compile(
    r",? (?:in|of|after) backward pass [\d,]+(?: \([^()]*\))?|(?<=^backward) pass [\d,]+"
)
_PASSES: Final = re.compile(r" in [\d,]+ backward pass(?:es)?(?: \([^()]*\))?")
_OWN: Final = re.compile(r"\S+\.agviz\b|\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
"""What is a test's own in a heading: files and numbers."""


class FailureCause(NamedTuple):
    """Why a test failed, as far as others can have failed for the same."""

    key: str
    """Equal where it is the same; the kind and the place."""
    title: str
    """A heading for all of them."""


NO_ANOMALY: Final = FailureCause("no anomaly", "no anomaly found in the backward passes")
DIED_EARLY: Final = FailureCause("died", "the process died, and there is no trace")
NO_BACKWARD: Final = FailureCause("no backward", "no backward pass ran: nothing was recorded")


def of_verdict(found: Verdict) -> FailureCause:
    """The cause that a verdict names."""
    from agviz.analysis.explanation import Explanation
    from agviz.analysis.raised import RaisedException

    basis = found.basis
    kind = type(basis).__name__ if basis is not None else ""
    if isinstance(basis, Explanation):
        kind = f"{kind} {basis.pattern or ''} {basis.node.short_name}"
    elif isinstance(basis, RaisedException):
        kind = f"{kind} {basis.error}"
    return _at(found, kind)


def of_missing(found: Verdict, row: GradientRow) -> FailureCause:
    """The cause why parameters have no gradient."""
    return _at(found, f"{row.gradient} {row.cause or ''}")


def of_words(found: Verdict) -> FailureCause:
    """The cause of what is known by its words alone: a check that failed, and the like."""
    return _at(found, _words(found))


def of_functions(names: str) -> FailureCause:
    """The same of numbers that are wrong, where derivatives written by hand took part."""
    title = f"{NO_ANOMALY.title}; custom Functions that took part: {names}"
    return FailureCause(f"{NO_ANOMALY.key}: {names}", title) if names else NO_ANOMALY


def without_pass(heading: str) -> str:
    """A heading that holds for other tests, too: it names no pass."""
    return _PASSES.sub("", _OF_A_PASS.sub("", heading))


def _at(found: Verdict, kind: str) -> FailureCause:
    where = f"at {found.line}" if found.line else _words(found)
    return FailureCause(f"{kind} {where}", without_pass(found.heading))


def _words(found: Verdict) -> str:
    return _OWN.sub("#", found.heading)
