"""Gradients that became larger than their dtype can hold."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from agviz.analysis.gradient_flow import is_custom_name
from agviz.analysis.measures import LARGEST, bad, magnitude, number
from agviz.analysis.origins import OriginKind
from agviz.analysis.patterns.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.analysis.evidence import Evidence

_EXPLODING: Final = "exploding gradients over depth"
OVERFLOWS: Final = frozenset({_EXPLODING, *(f"overflow in {dtype}" for dtype in LARGEST)})
"""Patterns that a smaller loss scale may be the remedy of."""
_LEAST_GROWTH: Final = {"float16": 1e3}
"""Of the norm, from the loss to where it overflows, to speak of an explosion."""
_LEAST_GROWTH_ELSEWHERE: Final = 1e9
_FEWEST_LEVELS: Final = 4
_CUSTOM_SHARE: Final = 0.25
"""Of the growth: a custom Function with so much of it is to be looked at."""
_LARGEST_SHARE: Final = 0.4
"""Of the growth (in logarithms) that a single step may have."""


def exploding(evidence: Evidence) -> Finding | None:
    """Norms that grew step by step over many layers, until the dtype was at its end."""
    wrong = evidence.wrong
    if overflow(evidence) is None or wrong is None:
        return None
    norms = [(name, norm) for name, norm in evidence.norms if 0 < norm < math.inf]
    if len(norms) < _FEWEST_LEVELS:
        return None
    rises = [
        (name, math.log10(after / before))
        for (_, before), (name, after) in pairwise(norms)
        if after > before
    ]
    first, last = norms[0][1], norms[-1][1]
    growth = last / first
    levels = _levels(rises)
    if growth < _LEAST_GROWTH.get(wrong.dtype, _LEAST_GROWTH_ELSEWHERE) or levels < _FEWEST_LEVELS:
        return None
    if max(rise for _, rise in rises) > _LARGEST_SHARE * sum(rise for _, rise in rises):
        return None
    own = _custom(rises)
    remedy = (
        f"{own}, whose backward the program defines, makes the gradient larger each time: look at"
        " it first; agviz check holds it against numerical derivatives."
        if own
        else "Normalise between the layers, or start from smaller weights (orthogonal, for"
        " recurrent ones): clipping comes too late."
    )
    return Finding(
        _EXPLODING,
        f"on its way the norm grew from {number(first)} to {number(last)} over"
        f" {len(norms)} nodes, a little in each of {levels} layers, until {wrong.dtype} overflowed",
        remedy,
    )


def _levels(rises: Sequence[tuple[str, float]]) -> int:
    """How often the kind of node in which most of the growth lies made the norm grow."""
    growth = _by_kind(rises)
    if not growth:
        return 0
    steepest = max(growth, key=growth.__getitem__)
    return sum(name == steepest for name, _ in rises)


def _by_kind(rises: Sequence[tuple[str, float]]) -> dict[str, float]:
    growth: dict[str, float] = {}
    for name, rise in rises:
        growth[name] = growth.get(name, 0.0) + rise
    return growth


def _custom(rises: Sequence[tuple[str, float]]) -> str:
    """A custom Function in which a good part of the growth lies; empty: there is none."""
    growth = {name: rise for name, rise in _by_kind(rises).items() if is_custom_name(name)}
    most = max(growth, key=growth.__getitem__, default="")
    whole = sum(rise for _, rise in rises)
    return most if most and growth[most] >= _CUSTOM_SHARE * whole else ""


def overflow(evidence: Evidence) -> Finding | None:
    """A product or a sum of finite numbers that is larger than its dtype can hold."""
    wrong = evidence.wrong
    if wrong is None or not wrong.posinf + wrong.neginf or evidence.kind is OriginKind.ROOT:
        return None
    limit = LARGEST.get(wrong.dtype)
    if limit is None or any(bad(row.health) for row in evidence.saved.values()):
        return None
    if any(bad(given.health) for given in evidence.received):
        return None
    largest = max((magnitude(given.health) for given in evidence.received), default=0.0)
    if evidence.kind is OriginKind.SUM:
        reason = _sum(evidence, limit)
    elif evidence.kind is OriginKind.ACCUMULATED:
        added = f"a gradient up to {number(largest)} was added to .grad, and the sum is beyond"
        reason = f"{added} {number(limit)}" if largest > limit / 2 else None
    else:
        reason = _product(evidence, limit)
    if reason is None:
        return None
    return Finding(f"overflow in {wrong.dtype}", reason, _remedy(evidence, wrong.dtype))


def _sum(evidence: Evidence, limit: float) -> str | None:
    """Finite gradients that met; there is no other way in which they become infinite."""
    names = ", ".join(
        dict.fromkeys(name for given in evidence.received for name in given.producers)
    )
    return (
        f"the {len(evidence.received)} gradients that met there (from {names}) are finite, but"
        f" their sum is beyond {number(limit)}"
    )


def _product(evidence: Evidence, limit: float) -> str | None:
    wrong = evidence.wrong
    if wrong is None:
        return None
    incoming = max((magnitude(given.health) for given in evidence.received), default=0.0)
    if incoming > limit:
        return f"that is beyond {number(limit)}, where {wrong.dtype} ends"
    bound = incoming
    factors = [magnitude(row.health) for row in evidence.saved.values() if row.health is not None]
    factors += [abs(value) for row in evidence.saved.values() if (value := _value(row.value))]
    for factor in factors:
        bound *= max(1.0, factor)
    summed = max((g.health.numel for g in evidence.received if g.health is not None), default=1)
    if bound * max(summed, 1) <= limit:
        return None
    with_what = f" with what it had saved, up to {number(max(factors))}," if factors else ""
    return f"the product{with_what} is beyond {number(limit)}, where {wrong.dtype} ends"


def _value(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _remedy(evidence: Evidence, dtype: str) -> str:
    if dtype not in {"float16", "bfloat16"}:
        return "Clip or rescale what comes before, or compute this part in float64."
    scale = evidence.scale
    if scale is not None:
        return (
            f"The loss is scaled by {number(scale)}: lower the scale (GradScaler skips such a step"
            " and halves it by itself), or use bfloat16, which needs none."
        )
    if dtype == "bfloat16":
        return "Compute this part in float32, or scale the loss down."
    return "Use bfloat16, or have autocast leave this part in float32."
