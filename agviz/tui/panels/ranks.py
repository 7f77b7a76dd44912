"""The lanes of all ranks over one axis of time, and what is known of the one under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from textual.binding import Binding, BindingType

from agviz.ranks.phases import Phase
from agviz.traces.rows import GraphTaskStatus
from agviz.tui.panels.line_list import LineList
from agviz.tui.panels.panel import Panel
from agviz.tui.text import Line, Span, left, plain, right
from agviz.tui.timeline import Window
from agviz.words.safe import clean
from agviz.words.units import duration, milliseconds, plural, ticks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.geometry import Size

    from agviz.ranks.phases import Stretch
    from agviz.ranks.slow import DeviceThread, RankWork
    from agviz.tui.ranks_reader import RankCollective, RankLine, RanksWindow

GLYPHS: Final = {
    Phase.FORWARD: "▒",
    Phase.BACKWARD: "█",
    Phase.WAITING: "░",
    Phase.TRANSFER: "▚",
    Phase.BETWEEN: "─",
}
_ALIGNED: Final = "│"
_PASS: Final = Binding.Group("Pass", compact=True)
_MOST_LABEL: Final = 24
_SLOWEST: Final = 3
"""Nodes that are named however little room there is."""
_OTHERS: Final = 6
"""Lines of what is said of a rank beside nodes and collectives, at most."""


class _Lane(NamedTuple):
    """A line: a rank, one of its device threads, or (rank None) what is folded below."""

    rank: RankLine | None
    thread: DeviceThread | None
    text: str


class RankLanes(LineList):
    """A line for each rank and device thread; where there are many ranks, for the odd ones."""

    HEADING = "Ranks"
    DRAWS = ()
    HAS_HEADER = True
    HELP = (
        "A lane for each rank, below it one for each of its device threads, all on one clock."
        " ▒ forward, █ backward, ░ waiting for the last rank to join a collective, ▚ transfer"
        " (blocked in one that all have joined), ─ between passes: the optimizer and the rest."
        " │ is where all ranks have joined a collective.\n\n"
        "Where there are more ranks than lines, those whose work differs most from that of the"
        " others are shown; of the others, the ones with the least, the median and the most"
        " represent all. Space shows every rank.\n\n"
        "Enter opens the ordinary view on the rank under the cursor, at this pass; backspace leads"
        " back here."
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        # Here and not in the screen: what scrolls takes left and right for itself.
        Binding("n,l,right", "screen.pass(1)", "Next pass", group=_PASS, id="ranks.next-pass"),
        Binding("N,h,left", "screen.pass(-1)", "Previous pass", group=_PASS, id="ranks.prev-pass"),
    ]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._window: RanksWindow | None = None
        self._works: dict[int, RankWork] = {}
        self._lanes: list[_Lane] = []
        self._drawn: dict[int, list[Stretch | None]] = {}
        """By rank: what each cell shows."""
        self._columns = 0

    @property
    def rank(self) -> RankLine | None:
        """The rank under the cursor."""
        return self._lanes[self.cursor].rank if self.cursor < len(self._lanes) else None

    @property
    def lanes(self) -> int:
        """How many lines there are."""
        return len(self._lanes)

    def show_window(self, window: RanksWindow, works: dict[int, RankWork]) -> None:
        """Draw a window; the cursor stays at its rank."""
        rank = self.rank
        self._window, self._works = window, works
        self._drawn.clear()
        self._lanes = [*_lanes(window, works)]
        self.line_count = len(self._lanes)
        if rank is not None:
            self.put_on(rank.number)
        self.subtitle(
            "▒ forward  █ backward  ░ waiting  ▚ transfer"
            if self.inner_width < 90
            else "▒ forward  █ backward  ░ waiting  ▚ transfer  ─ between passes  │ all have joined"
        )
        self.redraw()

    def put_on(self, number: int) -> None:
        """Put the cursor on a rank; on the first line where that is not shown."""
        places = (
            place
            for place, lane in enumerate(self._lanes)
            if lane.rank is not None and lane.rank.number == number
        )
        self.put_cursor(next(places, 0))

    def on_resize(self) -> None:
        """Lay out anew."""
        super().on_resize()
        self._drawn.clear()
        self.redraw()

    def cursor_moved(self) -> None:
        """Say more about another rank."""
        self.screen.post_message(self.NodeSelected(self.cursor))

    def copy_text(self) -> str:
        """The file of the rank under the cursor."""
        return "" if self.rank is None else str(self.rank.path)

    def header(self, width: int) -> Line:
        """The axis, with the numbers of the passes where several are shown."""
        window = self._window
        if window is None:
            return []
        axis = self._axis(width)
        cells = [" "] * axis.columns
        marks: list[tuple[float, str]] = list(
            ticks(0, window.end_ns - window.begin_ns, max(2, axis.columns // 14))
        )
        if window.last > window.first:
            marks = [(begin - window.begin_ns, f"#{n}") for n, begin in window.begins]
        free, here = 0, (-1, -1)
        for time, text in marks:
            column = axis.column(window.begin_ns + time)
            end = column + len(text) + 1
            if column >= free and end <= axis.columns:
                cells[column:end] = f"╵{text}"
                free = end + 1
                if text == f"#{window.ordinal}":
                    here = column, end
        text = "".join(cells)
        label = Span(" " * self._label_width)
        if here[0] < 0:
            return [label, Span(text, "muted")]
        begin, end = here
        return [
            label,
            Span(text[:begin], "muted"),
            Span(text[begin:end], "playhead"),
            Span(text[end:], "muted"),
        ]

    def line(self, index: int, width: int) -> Line:
        """A lane."""
        lane, window = self._lanes[index], self._window
        if window is None or lane.rank is None:
            return [Span(f" {lane.text}", "muted")]
        axis = self._axis(width)
        aligned = {axis.column(time) for time in window.alignments}
        label = left(lane.text, self._label_width - 1) + " "
        if lane.thread is not None:
            line = [Span(label, "muted")]
            return line + _turns(lane.thread, axis, aligned)
        look = "name"
        if lane.rank.status in {GraphTaskStatus.FAILED, GraphTaskStatus.CUT}:
            look = "failed"
        return [Span(label, look), *self._blocks(lane.rank, axis, aligned)]

    def _axis(self, width: int) -> Window:
        window = self._window
        columns = max(1, width - self._label_width)
        if columns != self._columns:
            self._columns = columns
            self._drawn.clear()
        if window is None:
            return Window(0, 1, columns)
        return Window(window.begin_ns, max(window.end_ns, window.begin_ns + 1), columns)

    @property
    def _label_width(self) -> int:
        labels = [lane.text for lane in self._lanes if lane.rank is not None]
        return min(_MOST_LABEL, max(map(len, labels), default=0)) + 1

    def _blocks(self, rank: RankLine, axis: Window, aligned: set[int]) -> Iterator[Span]:
        cells = self._drawn.get(rank.number)
        if cells is None:
            cells = self._drawn[rank.number] = cells_of(rank.stretches, axis)
        column = 0
        while column < len(cells):
            cell, end = cells[column], column + 1
            while end < len(cells) and cells[end] is cell:
                end += 1
            if cell is None:
                yield Span(_crossed(" " * (end - column), column, aligned), "muted")
            else:
                yield _block(rank, cell, column, end, aligned)
            column = end


class RankPanel(Panel):
    """What is known of the rank under the cursor in the passes that are shown."""

    HEADING = "Rank"
    DRAWS = ()
    HELP = ""
    can_focus = False

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._lines: list[Line] = []

    def show_rank(self, rank: RankLine | None, window: RanksWindow, work: RankWork | None) -> None:
        """Say what is known of it."""
        room = self.scrollable_content_region.size
        self._lines = [] if rank is None else [*_facts(rank, window, work, room)]
        self.border_title = "Rank" if rank is None else f"Rank {rank.number}"
        self.subtitle("" if rank is None or not rank.host else clean(rank.host))
        self.redraw()

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """A line of it; the last says how many have no room."""
        del width
        height = self.scrollable_content_region.height
        if y == height - 1 and len(self._lines) > height:
            return [Span(f" … {plural(len(self._lines) - height + 1, 'line')} more", "muted")], ""
        return (self._lines[y] if y < len(self._lines) else []), ""


def cells_of(stretches: Sequence[Stretch], axis: Window) -> list[Stretch | None]:
    """For each cell of an axis the stretch that takes most of it; None: nothing is known there."""
    cells: list[Stretch | None] = [None] * axis.columns
    shares = [0.0] * axis.columns
    for stretch in stretches:
        first = max(0, axis.column(stretch.begin_ns))
        for column in range(first, min(axis.columns, axis.column(stretch.end_ns) + 1)):
            share = min(stretch.end_ns, axis.time(column + 1)) - max(
                stretch.begin_ns, axis.time(column)
            )
            if share > shares[column]:
                shares[column], cells[column] = share, stretch
    return cells


def _lanes(window: RanksWindow, works: dict[int, RankWork]) -> Iterator[_Lane]:
    is_folded = False
    for rank in window.lines:
        if rank.word and not is_folded:
            is_folded = True
            others = len(window.chosen.folded)
            yield _Lane(
                None, None, f"{plural(others, 'other rank')}, by their own work; space: all"
            )
        name = f"rank {rank.number}"
        yield _Lane(rank, None, f"{rank.word} {name}" if rank.word else name)
        work = works.get(rank.number)
        for thread in () if work is None else work.threads:
            yield _Lane(rank, thread, f"  {clean(thread.name)}")


def _block(rank: RankLine, stretch: Stretch, begin: int, end: int, aligned: set[int]) -> Span:
    phase, width = stretch.phase, end - begin
    look = f"phase-{str(phase).split(' ', 1)[0]}"
    time = duration(stretch.end_ns - stretch.begin_ns)
    words = [f"{phase}, {time}", str(phase)]
    if phase is Phase.WAITING:
        awaited = {(one.group, one.seq): one.last for one in rank.collectives}
        last = None if stretch.key is None else awaited.get((stretch.key[0], stretch.key[2]))
        if last is not None and last != rank.number:
            words = [f"waiting for rank {last}, {time}", f"waiting for {last}", *words]
    glyph = GLYPHS[phase]
    for word in words if phase is not Phase.BETWEEN else ():
        if len(word) + 2 <= width:
            text = f" {word}".ljust(width)
            return Span(_crossed(text, begin, aligned, behind=len(word) + 1), f"{look}-name")
    return Span(_crossed(glyph * width, begin, aligned), look)


def _turns(thread: DeviceThread, axis: Window, aligned: set[int]) -> Line:
    """The cells in which a device thread ran nodes."""
    busy = [False] * axis.columns
    for begin, end in thread.turns:
        first, last = max(0, axis.column(begin)), min(axis.columns - 1, axis.column(end))
        for column in range(first, last + 1):
            busy[column] = True
    line = []
    column = 0
    while column < len(busy):
        end = column + 1
        while end < len(busy) and busy[end] == busy[column]:
            end += 1
        fill, look = ("█", "phase-backward") if busy[column] else ("·", "muted")
        line.append(Span(_crossed(fill * (end - column), column, aligned), look))
        column = end
    return line


def _crossed(text: str, column: int, aligned: set[int], behind: int = 0) -> str:
    """``text``, which begins in a column, with lines where ranks met; not in its first cells."""
    cells = [*text]
    for place in range(behind, len(cells)):
        if column + place in aligned:
            cells[place] = _ALIGNED
    return "".join(cells)


def _facts(
    rank: RankLine, window: RanksWindow, work: RankWork | None, room: Size
) -> Iterator[Line]:
    if rank.status is None:
        yield [Span(f" It made no pass {window.ordinal}.", "failed")]
    elif rank.status is not GraphTaskStatus.FINISHED:
        yield [Span(f" Pass {window.ordinal}: {rank.status}", "failed")]
    yield _totals(rank, room.width)
    if rank.clock.error_ns is None:
        yield [Span(" Its clock is known from wall clocks only.", "muted")]
    elif rank.clock.error_ns:
        yield [Span(f" Its clock may be {duration(rank.clock.error_ns)} off.", "muted")]
    if work is not None:
        yield from _slow(work, max(_SLOWEST, room.height - _OTHERS - len(rank.collectives)))
    if rank.collectives:
        yield [
            Span(" Collectives", "heading"),
            Span(f"{right('joined at', 10)}{right('waiting', 11)}", "muted"),
            Span(f"{right('transfer', 11)}   last", "muted"),
        ]
    for one in rank.collectives:
        yield _collective(one, window, rank.number)
    if rank.joined > len(rank.collectives):
        yield [Span(f"  and {rank.joined - len(rank.collectives):,} more", "muted")]


def _totals(rank: RankLine, width: int) -> Line:
    """What has no room is left out as a whole."""
    line: Line = [Span(" ")]
    for phase in Phase:
        if phase is Phase.BETWEEN and not rank.totals[phase]:
            continue  # one pass is shown
        name = str(phase).split(" ", 1)[0]
        more = [
            Span(f"{GLYPHS[phase]} ", f"phase-{name}"),
            Span(f"{name} {duration(rank.totals[phase])}  ", "name"),
        ]
        if len(plain([*line, *more]).rstrip()) <= width:
            line += more
    return line


def _slow(work: RankWork, most: int) -> Iterator[Line]:
    slow = [node for node in work.slow if node.busy_ns > 0][:most]
    if slow:
        yield [Span(" Slowest nodes, without what held them", "heading")]
    for node in slow:
        yield [
            Span(f"  {right(duration(node.busy_ns), 8)}  ", "number"),
            Span(clean(node.name), "name"),
            Span(f"  {clean(node.module)}", "place"),
        ]


def _collective(one: RankCollective, window: RanksWindow, number: int) -> Line:
    last = "" if one.last is None else "this one" if one.last == number else f"rank {one.last}"
    late = one.waiting_ns is not None and one.waiting_ns > (window.end_ns - window.begin_ns) / 20
    return [
        Span(f"  {right(milliseconds(one.time_ns - window.begin_ns) + ' ms', 20)}", "number"),
        Span(right(duration(one.waiting_ns), 11), "phase-waiting" if late else "number"),
        Span(right(duration(one.transfer_ns), 11), "number"),
        Span(f"   {left(last, 9)}", "name"),
        Span(f"  {clean(one.what)}", "place"),
        Span(f"  {one.seq} of group {clean(one.group)}", "muted"),
    ]
