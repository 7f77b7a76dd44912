"""What was measured of a gradient, in a few lines: numbers, their range, a histogram, elements."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Final

from agviz.tui.histogram import bars
from agviz.tui.text import Line, Span
from agviz.words.health import nonfinite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.health import HealthRow
    from agviz.tui.histogram import Sample
    from agviz.tui.model import Measure
    from agviz.tui.relatives import RelatedPass

_INDENT = 2
_MOST_BAR = 40
_MOST_LINES = 4
"""Of elements."""
_PRECISIONS: Final = {
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
"""Between 1 and the next larger number."""


class Entry:
    """A line, and the node it leads to.

    Args:
        line: the line, or what makes it when it is first seen.
        node: where it leads; None: nowhere.
        command: the beginning of a command about what is there; empty: there is none.
        place: of another graph task, to which it leads; None: to none.
    """

    def __init__(
        self,
        line: Line | Callable[[], Line],
        node: int | None = None,
        command: str = "",
        place: RelatedPass | None = None,
    ) -> None:
        self._line = line
        self.node = node
        self.command = command
        self.place = place

    @property
    def line(self) -> Line:
        """The line."""
        if callable(self._line):
            self._line = self._line()
        return self._line


def measured(measure: Measure, width: int, role: str = "") -> Iterator[Entry]:
    """Lines of at most ``width`` cells.

    Args:
        measure: of one gradient.
        width: of the panel.
        role: what it is; empty: as it was recorded.
    """
    health = measure.health
    kind = " ".join(word for word in (role or health.role, health.dtype, health.device) if word)
    if health.unknown:
        yield _line(Span(f"{kind}: not measured, {health.unknown}", "muted"))
        return
    bad = nonfinite(health.nan, health.posinf, health.neginf)
    look = "nonfinite" if bad else "done"
    zeros = f", {health.zero:,} of {health.numbers:,} zero" if health.zero else ""
    yield _line(
        Span(f"{kind}  ", "muted"), Span(f"{'!' if bad else '✓'} {bad or 'finite'}{zeros}", look)
    )
    if health.norm is not None:
        text = f"norm {_number(health.norm)}  mean {_mean(health)}"
        yield _line(Span(text, "number"))
    yield from _range(health, measure.sample, width - _INDENT)
    if measure.sample is not None:
        yield from _elements(measure.sample, width - _INDENT)
    elif measure.unknown:
        yield _line(Span(f"elements: not in the file, {measure.unknown}", "muted"))


def _range(health: HealthRow, sample: Sample | None, room: int) -> Iterator[Entry]:
    """From the smallest to the largest finite number: a histogram, or where the mean lies."""
    low, high, mean = health.min, health.max, health.mean
    if low is None or high is None:
        return
    width = min(_MOST_BAR, room - 2 - max(20, len(_number(low)) + len(_number(high))))
    if width < 8:
        return
    middle = bars(sample.counts, width) if sample is not None and sample.counts else ""
    if not middle:
        cells = ["─"] * width
        cells[0], cells[-1] = "├", "┤"
        if low < 0 < high:
            cells[_cell(0.0, low, high, width)] = "┼"
        if mean is not None:
            cells[_cell(mean, low, high, width)] = "◆"
        middle = "".join(cells)
    yield _line(
        Span(f"{_number(low):<10} ", "number"),
        Span(middle, "ready"),
        Span(f" {_number(high)}", "number"),
    )


def _cell(value: float, low: float, high: float, width: int) -> int:
    # Halved, the largest numbers have a difference that is a number.
    span = high / 2 - low / 2
    share = (value / 2 - low / 2) / span if span > 0 else 0.5
    return min(max(int(share * width), 0), width - 1)


def _elements(sample: Sample, width: int) -> Iterator[Entry]:
    pieces = textwrap.wrap(" ".join(sample.first), max(1, width - 2))[:_MOST_LINES]
    for number, piece in enumerate(pieces):
        yield _line(Span("  " if number else "[ ", "muted"), Span(piece.strip(), "name"))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _mean(health: HealthRow) -> str:
    """The mean; ``≈0`` where rounding the elements alone may make as much of a difference."""
    mean, norm = health.mean, health.norm
    precision = _PRECISIONS.get(health.dtype, 0.0)
    if not mean or not norm or not math.isfinite(norm) or not health.numbers:
        return _number(mean)
    # Rounding moves each element by up to this share of it, and by Cauchy and Schwarz the mean of
    # the elements without their signs is at most norm / sqrt(n).
    is_noise = abs(mean) <= precision * norm / math.sqrt(health.numbers)
    return "≈0" if is_noise else _number(mean)


def _line(*spans: Span) -> Entry:
    return Entry([Span(" " * _INDENT), *spans])
