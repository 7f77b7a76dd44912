"""Two passes beside each other: a line for each node of both, and what is known of one of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.analysis.alignment import NOWHERE
from agviz.analysis.beside import RowMark
from agviz.analysis.beside_words import is_consequence
from agviz.traces.nodes import short_name
from agviz.tui.panels.line_list import LineList
from agviz.tui.panels.panel import Panel
from agviz.tui.text import Line, Span, left, right, tail, wrap
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.analysis.beside import Beside, BesideRow
    from agviz.analysis.pass_columns import PassColumns
    from agviz.tui.comparing import RowSaid

_WIDE: Final = 100
"""Cells from which on both sides have names."""
_WIDER: Final = 150
"""From which on they have times."""
_NORM, _RATIO, _TIME = 9, 8, 9
_ONLY_A: Final = "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}"
_ONLY_B: Final = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
_BAD: Final = RowMark.BAD_A | RowMark.BAD_B


class CompareList(LineList):
    """One line for each node of A with its partner in B, and for each that has none."""

    HEADING = "Compare"
    DRAWS = ()
    HAS_HEADER = True
    HELP = (
        "Two backward passes beside each other, in the order in which A ran: = the same in all that"
        f" was measured, ≠ not the same, {_ONLY_A} only in A, {_ONLY_B} only in B,"
        " ! not finite on a side, ↕ the"
        " same, but ran in another order, · not measured on both sides. + has norms that are a"
        " little apart count as near (≈), - less so: d goes past those. ▲ took much longer in B: t"
        " goes from one of these to the next, beginning with what made most of the difference.\n\n"
        "▎ is where everything that the node was given is the same: a difference begins there."
        " Those after it may be its consequences. Norms are of all that a node put out, of a leaf"
        " that of what arrived in .grad; the factor is B by A.\n\n"
        "The line of both sides is one place: j, k, n and N move through both passes at once, enter"
        " opens A there and o opens B, d in a pass leads back. Below is what was recorded of the"
        " line on both sides."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open(0)", "Open A", id="compare.open-a"),
        Binding("o", "open(1)", "Open B", id="compare.open-b"),
        Binding("n", "cursor(1)", "Next node", show=False, id="compare.next-node"),
        Binding("N", "cursor(-1)", "Previous node", show=False, id="compare.previous-node"),
    ]

    class SideOpened(Message):
        """The user wants to see the node of a side."""

        def __init__(self, side: int) -> None:
            super().__init__()
            self.side = side

    class LineMoved(Message):
        """The cursor is on another line."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._beside: Beside | None = None
        self._tolerance = 0.0
        self._slower: frozenset[int] = frozenset()

    def show_rows(self, beside: Beside | None, tolerance: float = 0.0) -> None:
        """List them; None: they are not known yet.

        Args:
            beside: the rows.
            tolerance: how far norms may be apart, as a share of the larger one.
        """
        self._beside, self._tolerance = beside, tolerance
        self._slower = frozenset() if beside is None else frozenset(beside.slower)
        self.line_count = 0 if beside is None else len(beside)
        self.redraw()

    def header(self, width: int) -> Line:
        """Names of the columns."""
        if width < _WIDE:
            room = width - 3 - 2 * (_NORM + 1) - _RATIO
            text = f"   {left('node', room)}{right('norm A', _NORM)} {right('norm B', _NORM)}"
            return [Span(f"{text} {right('B / A', _RATIO)}", "muted")]
        room, number, has_times = self._widths(width)
        sides = []
        for name in "AB":
            text = f"{right('#', number)} {left(f'node of {name}', room)}{right('norm', _NORM)}"
            sides.append(text + (right("time", _TIME) if has_times else ""))
        return [Span(f"   {' │ '.join(sides)}{right('B / A', _RATIO)}", "muted")]

    def line(self, index: int, width: int) -> Line:
        """A node of both."""
        beside = self._beside
        if beside is None:
            return []
        row = beside[index]
        line = [*_glyphs(row, is_near=beside.is_near(index, self._tolerance)), Span(" ")]
        a, b = (beside.a, row.a), (beside.b, row.b)
        if width < _WIDE:
            room = width - 3 - 2 * (_NORM + 1) - _RATIO
            line += _named(*(b if row.a == NOWHERE else a), room)
            line += [_norm(*a), Span(" "), _norm(*b), Span(" ")]
        else:
            room, number, has_times = self._widths(width)
            for side, (columns, node) in enumerate((a, b)):
                if side:
                    line.append(Span(" │ ", "muted"))
                order = columns.orders[node] if node != NOWHERE else 0
                line.append(Span(f"{right(f'{order:,}' if order else '', number)} ", "number"))
                line += [*_named(columns, node, room), _norm(columns, node)]
                if has_times:
                    took = columns.times[node] if node != NOWHERE else -1
                    is_slower = bool(side) and index in self._slower
                    said = "▲" * is_slower + ("" if took < 0 else duration(took))
                    line.append(Span(right(said, _TIME), "nonfinite" if is_slower else "number"))
        return [*line, _ratio(beside, row)]

    def cursor_moved(self) -> None:
        """Say of which line more is wanted."""
        self.post_message(self.LineMoved())

    def action_open(self, side: int) -> None:
        """Open the pass of a side at this node."""
        self.post_message(self.SideOpened(side))

    def _widths(self, width: int) -> tuple[int, int, bool]:
        number = len(f"{self.line_count:,}")
        has_times = width >= _WIDER
        rest = 3 + 3 + _RATIO + 2 * (number + 1 + _NORM + _TIME * has_times)
        return (width - rest) // 2, number, has_times


def _glyphs(row: BesideRow, *, is_near: bool) -> Line:
    """Where a difference begins, and what the line is."""
    if is_near:
        return [Span(" "), Span("≈", "number")]
    look = "muted"
    if row.differs:
        look = "nonfinite" if row.is_paired and is_consequence(row.marks) else "failed"
    begins = Span("▎" if row.marks & RowMark.FIRST else " ", "failed")
    if row.marks & _BAD:
        return [begins, Span("!", look if row.differs else "nonfinite")]
    if not row.is_paired:
        return [begins, Span(_ONLY_A if row.b == NOWHERE else _ONLY_B, look)]
    if row.differs:
        return [begins, Span("≠", look)]
    if row.marks & RowMark.UNKNOWN:
        return [begins, Span("·", look)]
    return [begins, Span("↕", "number") if row.marks & RowMark.ORDER else Span("=", "done")]


def _named(columns: PassColumns, node: int, room: int) -> Line:
    if node == NOWHERE:
        return [Span(" " * room)]
    facts = columns.graph[node]
    name, where = short_name(facts.name), facts.parameter or facts.module or ""
    width = min(len(name), room - 1)
    rest = room - width - 2
    line = [Span(left(name, width), "name")]
    if where and rest >= 4:
        return [
            *line,
            Span(f" {tail(where, rest) if len(where) > rest else left(where, rest)} ", "place"),
        ]
    return [*line, Span(" " * (room - width))]


def _norm(columns: PassColumns, node: int) -> Span:
    if node == NOWHERE:
        return Span(" " * _NORM)
    if columns.bad[node]:
        return Span(right("NaN/Inf", _NORM), "nonfinite")
    norm = columns.norms[node]
    return Span(right("-" if math.isnan(norm) else f"{norm:.4g}", _NORM), "number")


def _ratio(beside: Beside, row: BesideRow) -> Span:
    if not row.is_paired or row.marks & _BAD:
        return Span(" " * _RATIO)
    a, b = beside.a.norms[row.a], beside.b.norms[row.b]
    said = ""
    if a != b and a > 0 and b > 0 and math.isfinite(a) and math.isfinite(b):
        factor = b / a
        said = f"{factor:.3g}x" if factor >= 1 else f"/{1 / factor:.3g}"
        if said in {"1x", "/1"}:
            said = "≈1"
    return Span(right(said, _RATIO), "number")


class CompareAnswer(Panel):
    """What was found, and what is known of the line under the cursor."""

    HEADING = "What differs"
    DRAWS = ()
    HELP = ""
    can_focus = False

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._said: Sequence[str] = ()
        self._row: RowSaid | None = None
        self._row_comes_first = False

    def show_found(self, said: Sequence[str]) -> None:
        """Say what was found in the whole passes."""
        self._said, self._row = said, None
        self.redraw()

    def show_row(self, row: RowSaid, *, comes_first: bool) -> None:
        """Say what is known of a row, before what was found in the whole passes or after it."""
        self._row, self._row_comes_first = row, comes_first
        self.redraw()

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """A line of it."""
        lines = self._lines(width - 2)
        height = self.scrollable_content_region.height
        if y == height - 1 and len(lines) > height:
            more = plural(len(lines) - height + 1, "line")
            return [Span(f" … {more} more: agviz diff says all", "muted")], ""
        return (lines[y] if y < len(lines) else []), ""

    def _lines(self, width: int) -> list[Line]:
        found: list[Line] = []
        for number, sentence in enumerate(self._said):
            look = "heading" if not number else ""
            found += [[Span(f" {text}", look)] for text in wrap(sentence, width)]
        if self._row is None:
            return found
        row = self._of_row(self._row, width)
        return [*row, *found] if self._row_comes_first else [*found, *row]

    def _of_row(self, row: RowSaid, width: int) -> list[Line]:
        lines: list[Line] = []
        if width < _WIDE:
            for name, side in (("A", row.a), ("B", row.b)):
                for text in wrap(" · ".join(side), width - 2):
                    lines.append([Span(f" {name} ", "muted"), Span(text)])
                    name = " "  # noqa: PLW2901 - only the first line has it
        else:
            half = width // 2 - 3
            a, b = ([text for said in side for text in wrap(said, half)] for side in (row.a, row.b))
            for place in range(max(len(a), len(b))):
                texts = [each[place] if place < len(each) else "" for each in (a, b)]
                names = "AB" if not place else "  "
                lines.append(
                    [
                        Span(f" {names[0]} ", "muted"),
                        Span(left(texts[0], half)),
                        Span(f" {names[1]} ", "muted"),
                        Span(texts[1]),
                    ]
                )
        for said in row.differs if self._row_comes_first else ():
            lines += [[Span(f" ≠ {text}", "nonfinite")] for text in wrap(said, width - 2)]
        return lines
