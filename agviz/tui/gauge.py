"""What was measured of a gradient, in a few lines: numbers, their range, a histogram, elements."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from agviz.tui.describe import nonfinite
from agviz.tui.histogram import bars
from agviz.tui.text import Line, Span, left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.health import HealthRow
    from agviz.tui.histogram import Sample
    from agviz.tui.model import Measure
    from agviz.tui.relatives import Place

_INDENT = 2
_MOST_BAR = 40
_MOST_LINES = 4
"""Of elements."""


class Entry:
    """A line, and the node it leads to.

    Args:
        line: the line, or what makes it when it is first seen.
        node: where it leads; None: nowhere.
        command: the beginning of a command about what stands there; empty: there is none.
        place: of another graph task, to which it leads; None: to none.
    """

    def __init__(
        self,
        line: Line | Callable[[], Line],
        node: int | None = None,
        command: str = "",
        place: Place | None = None,
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
    bad = health.nan or health.posinf or health.neginf
    found = nonfinite(health.nan, health.posinf, health.neginf)
    look = "nonfinite" if bad else "done"
    zeros = f", {health.zero:,} of {health.numbers:,} zero" if health.zero else ""
    yield _line(Span(f"{kind}  ", "muted"), Span(f"{'!' if bad else '✓'} {found}{zeros}", look))
    if health.norm is not None:
        text = f"norm {_number(health.norm)}  mean {_number(health.mean)}"
        yield _line(Span(text, "number"))
    yield from _range(health, measure.sample, min(_MOST_BAR, width - _INDENT - 22))
    if measure.sample is not None:
        yield from _elements(measure.sample, width - _INDENT)
    elif measure.unknown:
        yield _line(Span(f"elements: not in the file, {measure.unknown}", "muted"))


def _range(health: HealthRow, sample: Sample | None, width: int) -> Iterator[Entry]:
    """From the smallest to the largest finite number: a histogram, or where the mean lies."""
    low, high, mean = health.min, health.max, health.mean
    if low is None or high is None or width < 8:
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
        Span(f"{left(_number(low), 10)} ", "number"),
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


def _line(*spans: Span) -> Entry:
    return Entry([Span(" " * _INDENT), *spans])
