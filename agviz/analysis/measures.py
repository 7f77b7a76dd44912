"""What was measured of a tensor: questions that are asked of it, and the words for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.words.health import nonfinite
from agviz.words.shapes import write_shape
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agviz.measure.values import Health
    from agviz.traces.health import HealthRow
    from agviz.traces.rows import NodeRow

LARGEST: Final[Mapping[str, float]] = {
    "float16": 65_504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "complex64": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
    "complex128": 1.7976931348623157e308,
}
"""The largest finite number of each dtype."""


def bad(health: Health | HealthRow | None) -> int:
    """How many of its numbers are NaN or infinite."""
    return 0 if health is None else health.nan + health.posinf + health.neginf


def is_nonfinite(node: NodeRow) -> bool:
    """Whether a non-finite number was found in an output of a node."""
    return node.nonfinite is not None and any(node.nonfinite)


def magnitude(health: Health | HealthRow | None) -> float:
    """The largest absolute value among its finite numbers; 0.0 where there are none."""
    if health is None or health.min is None or health.max is None:
        return 0.0
    return max(abs(health.min), abs(health.max))


def counts(health: Health | HealthRow) -> str:
    """``3 NaN and 1 +Inf among 12 numbers``."""
    found = nonfinite(health.nan, health.posinf, health.neginf, " and ")
    return f"{found or 'nothing non-finite'} among {plural(health.numbers, 'number')}"


def dtype_and_shape(health: Health | HealthRow) -> str:
    """``float32 [4, 3]``."""
    return f"{health.dtype} {write_shape(health.shape, 'of unknown shape')}"


def extent(health: Health | HealthRow) -> str:
    """``-0.3 … 0.8``, of what is finite."""
    if health.min is None or health.max is None:
        return "nothing finite"
    if health.min == health.max:
        return number(health.min)
    return f"{number(health.min)} … {number(health.max)}"


def number(value: float) -> str:
    """Four digits: ``65,536``, ``0.3333``, ``1e+20``."""
    if abs(value) < 1e9 and value == int(value):
        return f"{int(value):,}"
    return f"{value:.4g}"


def places(count: int) -> str:
    """``in 1 place``."""
    return f"in {plural(count, 'place')}"
