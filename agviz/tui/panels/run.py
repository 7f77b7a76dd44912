"""A whole run: a chart, and a line for every backward pass."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.analysis.pass_marks import PassMark
from agviz.analysis.run_table import merged
from agviz.tui.panels.line_list import LineList
from agviz.tui.panels.panel import Panel
from agviz.tui.text import Line, Span, left, right, tail
from agviz.words.safe import clean
from agviz.words.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.run_table import Bucket, RunRow, RunTable

_BARS: Final = " ▁▂▃▄▅▆▇█"
_NAME: Final = 10
_MOST_CELLS: Final = 4
"""Of the bar of one pass."""
_MUCH: Final = 10.0
"""A change of a gradient's norm that is marked."""
_GLYPHS: Final = {
    PassMark.FAILED: ("✗", "failed"),
    PassMark.CUT: ("✗", "failed"),
    PassMark.UNDER_WAY: ("●", "running"),
    PassMark.NON_FINITE: ("!", "nonfinite"),
    PassMark.LOSS: ("!", "nonfinite"),
    PassMark.WENT_BACK: ("↶", "muted"),
}


class RunChart(Panel):
    """A bar for each pass, or for some that follow each other: loss, gradient norm, time."""

    HEADING = "Run"
    DRAWS = ()
    HELP = ""
    can_focus = False

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._charts: dict[str, list[Bucket]] = {}
        self._share = 0.0
        self.bar_lines = 1
        """Of each chart."""

    def show_charts(self, charts: dict[str, list[Bucket]]) -> None:
        """Draw them."""
        self._charts = charts
        self.redraw()

    def show_place(self, share: float) -> None:
        """Mark the pass under the cursor.

        Args:
            share: of the passes that come before it.
        """
        self._share = share
        self.redraw()

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """A line of a chart; the lowest has its name, and what the last pass has."""
        number, line_of = divmod(y, self.bar_lines + (self.bar_lines > 1))
        if number >= len(self._charts) or line_of >= self.bar_lines:
            return [], ""
        above = self.bar_lines - 1 - line_of
        name, buckets = [*self._charts.items()][number]
        last = next((one.most for one in reversed(buckets) if one.most is not None), None)
        said = "" if last is None else _amount(name, last)
        room = width - _NAME - 13
        line = [Span(f" {left('' if above else name, _NAME)}", "muted")]
        if not any(one.most is not None or one.is_bad for one in buckets):
            return [*line, Span("" if above else "not known", "muted")], ""
        each = min(max(1, room // len(buckets)), _MOST_CELLS)
        marked = int(self._share * min(room, len(buckets)))
        line += _bars(merged(buckets, room), marked, each, (above, self.bar_lines))
        return [*line, Span("" if above else f"  {said}", "number")], ""


def _bars(
    buckets: Sequence[Bucket], marked: int, cells: int, part: tuple[int, int]
) -> Iterator[Span]:
    """A line of bars; ``part``: how many are below it, of how many."""
    below, lines = part
    finite = [one.most for one in buckets if one.most is not None]
    low, high = min(0.0, *finite, 0.0), max(finite, default=0.0)
    for place, bucket in enumerate(buckets):
        if bucket.is_bad:
            glyph, look = " " if below else "!", "nonfinite"
        elif bucket.most is None:
            glyph, look = " " if below else "·", "muted"
        else:
            level = 0 if high == low else (bucket.most - low) / (high - low)
            eighths = min(int(level * 8 * lines), 8 * lines - 1) + 1 - 8 * below
            glyph, look = _BARS[min(max(eighths, 0), 8)], "lane-past"
        yield Span(glyph * cells, "playhead" if place == marked else look)


class RunList(LineList):
    """One line for each backward pass that no node of another began."""

    HEADING = "Passes"
    DRAWS = ()
    HAS_HEADER = True
    EMPTY = "No pass fits."
    HELP = (
        "Every backward pass of the run: ✗ failed or cut off, ! a gradient or the loss is not"
        " finite, ● under way, ↶ went back and ran on as the next, ✓ came to its end, and all that"
        " was measured is finite, ? was not measured.\n\n"
        "Loss is what backward was called on, where that is one number. Grad norm is the Euclidean"
        " norm of all gradients that leaves had afterwards. T is the thread that called it, where"
        " several did. Forward is the time from the first call"
        " of a module to the call of backward. The largest change is that of the parameter whose"
        " gradient's norm differs most from the pass before: 10x is ten times it, /10 a tenth."
        " Below is what is to be said of the pass under the cursor. » is the pass that m marked: d"
        " compares with it, or else with the last good one of the same kind.\n\n"
        "The bars above are the run from left to right: the largest value of the passes behind"
        " each, ! where one is not finite."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open pass", id="run.open"),
    ]

    class PassOpened(Message):
        """The user wants to see the pass under the cursor."""

    class Moved(Message):
        """The cursor is on another pass."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._table: RunTable | None = None
        self._places: Sequence[int] = ()
        self._is_measured = True
        self._marked: int | None = None
        self._most_thread: int | None = None
        """The highest number of a thread that called one; None: a single one did."""

    def show_marked(self, graph_task: int | None) -> None:
        """Show with which pass others are compared."""
        self._marked = graph_task
        self.redraw()

    def show_run(self, table: RunTable, places: Sequence[int], *, is_measured: bool) -> None:
        """List these rows of a table."""
        before = self.place
        self._table, self._places, self._is_measured = table, places, is_measured
        threads = table.tasks.threads
        self._most_thread = max(threads) if len(threads) > 1 else None
        self.line_count = len(places)
        if before is not None:
            self.put_on(before)
        self.redraw()

    @property
    def place(self) -> int | None:
        """The row of the table under the cursor; None: there is none."""
        return self._places[self.cursor] if self.cursor < len(self._places) else None

    @property
    def places(self) -> Sequence[int]:
        """The rows of the table that are listed, line by line."""
        return self._places

    def next_of(self, places: Sequence[int], by: int) -> int | None:
        """The next line (1) with one of some rows of the table, or the previous one (-1), if any.

        Args:
            places: of these, in ascending order.
            by: in which direction.
        """
        if isinstance(self._places, range):
            before, until = bisect_left(places, self.cursor), bisect_right(places, self.cursor)
            found = until if by > 0 else before - 1
            return places[found] if 0 <= found < len(places) else None
        wanted = set(places)
        lines = range(self.cursor + by, self.line_count if by > 0 else -1, by)
        return next((line for line in lines if self._places[line] in wanted), None)

    @property
    def run_row(self) -> RunRow | None:
        """The same as a row."""
        place = self.place
        return None if place is None or self._table is None else self._table[place]

    def put_on(self, place: int) -> None:
        """Put the cursor on a row of the table, if it is listed."""
        if isinstance(self._places, range):
            found = place if place in self._places else None
        else:
            found = self._places.index(place) if place in self._places else None
        if found is not None:
            self.put_cursor(found)

    def header(self, width: int) -> Line:
        """Names of the columns."""
        number, forward, thread = self._widths(width)
        text = f"   {right('#', number)}  {left('call', 8)}"
        text += f" {left('T', thread - 1)}" if thread else ""
        text += f"{right('loss', 10)} "
        text += f"{right('grad norm', 10)} {right('time', 8)} "
        if forward:
            text += f"{right('forward', 8)} {right('nodes', 7)} "
        return [Span(f"{text} largest change", "muted")]

    def line(self, index: int, width: int) -> Line:
        """A pass."""
        if self._table is None:
            return []
        row = self._table[self._places[index]]
        number, forward, thread = self._widths(width)
        line = [
            Span("»" if row.task.id == self._marked else " ", "match"),
            self._glyph(row),
            Span(f" {right(f'{row.task.id:,}', number)}  ", "number"),
            Span(left("backward" if row.task.accumulate_grad else "grad", 8), "name"),
            Span(f" {left(f'T{row.task.thread}', thread - 1)}" if thread else "", "number"),
            _value("loss", row.loss, 10),
            Span(" "),
            _value("grad norm", row.norm, 10),
            Span(f" {right(duration(row.took_ns), 8)} ", "number"),
        ]
        if forward:
            line.append(Span(f"{right(duration(row.forward_ns), 8)} ", "number"))
            line.append(Span(f"{right(f'{row.task.nodes:,}', 7)} ", "number"))
        used = sum(len(span.text) for span in line)
        return [*line, Span(" "), *_change(row, max(0, width - used - 1))]

    def cursor_moved(self) -> None:
        """Say of which pass more is wanted."""
        self.post_message(self.Moved())

    def action_open(self) -> None:
        """Look at the pass."""
        if self.run_row is not None:
            self.post_message(self.PassOpened())

    def _widths(self, width: int) -> tuple[int, bool, int]:
        """Of the number, whether forward and nodes have room, and of the thread (0: one alone)."""
        ids = () if self._table is None else self._table.tasks.ids
        last = ids[-1] if ids else 0
        most = self._most_thread
        thread = 0 if most is None else len(f" T{most}")
        return max(4, len(f"{last:,}")), width >= _WIDE, thread

    def _glyph(self, row: RunRow) -> Span:
        if row.mark is None:
            return Span("✓", "done") if self._is_measured else Span("?", "muted")
        return Span(*_GLYPHS[row.mark])


_WIDE: Final = 96
"""Cells from which on forward and nodes have room."""


def _value(name: str, value: float | None, width: int) -> Span:
    if value is None:
        return Span(right("-", width), "muted")
    is_finite = math.isfinite(value)
    return Span(right(_amount(name, value), width), "number" if is_finite else "nonfinite")


def _amount(name: str, value: float) -> str:
    if name == "time":
        return duration(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.4g}"


def _change(row: RunRow, width: int) -> Line:
    change = row.change
    if change is None:
        return []
    factor = change.factor
    if math.isnan(factor):
        said = "not finite"
    elif factor == 0:
        said = "to 0"
    elif math.isinf(factor):
        said = "from 0"
    else:
        said = f"{factor:.3g}x" if factor >= 1 else f"/{1 / factor:.3g}"
    room = min(width - len(said) - 1, len(change.parameter))
    if room < 4:
        return [Span(said, "number")]
    look = "nonfinite" if change.size >= _MUCH else "number"
    return [Span(f"{tail(clean(change.parameter), room)} ", "place"), Span(said, look)]
