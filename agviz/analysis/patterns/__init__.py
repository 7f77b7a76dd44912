"""Known ways in which gradients become NaN or infinite: one small pure rule for each.

A rule takes the :class:`agviz.analysis.evidence.Evidence` and gives a :class:`Finding`, or None
where what was measured does not show its pattern. The name of a node alone is never enough: the
numbers have to be there. The rules are asked in the order of :data:`RULES`; the first that finds
something is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.patterns import decompositions, flow, forward, overflow, singular
from agviz.analysis.patterns.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.analysis.evidence import Evidence

__all__ = ["RULES", "Finding", "find"]

RULES: Final[Sequence[Callable[[Evidence], Finding | None]]] = (
    flow.root_gradient,
    flow.hook,
    flow.replaced,
    singular.zero_times_infinity,
    singular.unreachable,
    forward.data,
    forward.parameter,
    singular.singular_here,
    forward.function,
    singular.singular,
    decompositions.decomposition,
    flow.old_grad,
    overflow.exploding,
    overflow.overflow,
    forward.unknown,
)


def find(evidence: Evidence) -> Finding | None:
    """The first pattern that fits, or None."""
    return next((found for rule in RULES if (found := rule(evidence)) is not None), None)
