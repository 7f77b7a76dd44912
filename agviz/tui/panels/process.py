"""A whole process on one axis of time: lanes of threads, and sums of a stretch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.analysis.process_timeline import SpanKind
from agviz.tui.panels.line_list import LineList
from agviz.tui.panels.panel import Panel
from agviz.tui.text import Line, Span, left, right, tail
from agviz.tui.timeline import Window
from agviz.words.safe import clean
from agviz.words.units import duration, plural, ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events

    from agviz.analysis.process_timeline import (
        LaneRow,
        NodeNeighbour,
        PartTimes,
        ProcessLane,
        ProcessPicture,
        ThreadSpan,
    )

_ZOOM = Binding.Group("Zoom", compact=True)
_SHADES: Final = "░▒▓█"
_NAME_FROM: Final = 4
"""A bar of so many cells has room for its name."""
_LOOKS: Final = {
    SpanKind.FORWARD: "phase-forward",
    SpanKind.CALL: "phase-forward",
    SpanKind.BACKWARD: "phase-backward",
    SpanKind.MODULE: "phase-backward",
    SpanKind.NODE: "lane-past",
    SpanKind.STEP: "phase-transfer",
}
_Cell = tuple[str, str]


def title_of(span: ThreadSpan) -> str:
    """What a bar is."""
    match span.kind:
        case SpanKind.FORWARD:
            return f"forward #{span.graph_task}"
        case SpanKind.BACKWARD:
            return f"backward #{span.graph_task}"
        case SpanKind.CALL:
            return clean(span.name) or "(outermost module)"
        case SpanKind.STEP:
            return f"{clean(span.name)}.step"
        case _:
            return clean(span.name)


class ProcessLanes(Panel):
    """The axis, and for each thread a line for each depth."""

    HEADING = "Timeline"
    DRAWS = ()
    HELP = (
        "What each thread did, on one axis for the whole recording: forwards with the calls of"
        " modules, backward passes with modules and nodes, reentrant passes in the node that began"
        " them, steps of optimizers. A bar is as wide as it took; where bars are narrower than a"
        " cell, ░▒▓█ say how much of it is taken. · is time in which a thread did nothing that was"
        " recorded. What a pass holds is drawn from two cells on.\n\n"
        "Of the node under the cursor, ↗ are those that gave it gradients, and ↘ those that it gave"
        " some; the line below says so in words. ┆ on the axis is where a debugger held a thread:"
        " that time is cut out.\n\n"
        "[ and ] set the begin and the end of a stretch, s sums it up, or what is shown where there"
        " is none: a thread's time is that of nodes, calls of modules and steps without what is"
        " inside of them, of the engine, of waiting for other threads, and idle."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "zoom(0.5)", "Zoom in", group=_ZOOM, id="process.zoom-in"),
        Binding("minus", "zoom(2)", "Zoom out", group=_ZOOM, id="process.zoom-out"),
        Binding("0", "fit", "Pass or process", group=_ZOOM, id="process.fit"),
        Binding("right", "move(1)", "Later", show=False, id="process.later"),
        Binding("left", "move(-1)", "Earlier", show=False, id="process.earlier"),
        Binding("l,shift+right", "pan(0.25)", "Pan", show=False, id="process.pan-right"),
        Binding("h,shift+left", "pan(-0.25)", "Pan", show=False, id="process.pan-left"),
        Binding("g,home", "pan(-1e12)", "Begin", show=False, id="process.begin"),
        Binding("G,end", "pan(1e12)", "End", show=False, id="process.end"),
        Binding("n", "bar(1)", "Next bar", show=False, id="process.next"),
        Binding("N", "bar(-1)", "Previous bar", show=False, id="process.previous"),
        Binding("j,down", "line(1)", "Down", show=False, id="process.down"),
        Binding("k,up", "line(-1)", "Up", show=False, id="process.up"),
        Binding("left_square_bracket", "mark(0)", "From", id="process.from"),
        Binding("right_square_bracket", "mark(1)", "To", id="process.to"),
        Binding("enter", "open", "Open", id="process.open"),
    ]

    class Changed(Message):
        """Another window is wanted, or another bar is under the cursor."""

    class SpanOpened(Message):
        """The user wants to see what is under the cursor."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.picture: ProcessPicture | None = None
        self.window: tuple[int, int] | None = None
        """None: the pass that is open."""
        self.range: list[int | None] = [None, None]
        self._labels: dict[int, str] = {}
        self._whole = (0, 1)
        self._pass = (0, 1)
        self._at = 0.0
        """The moment under the cursor."""
        self._line = 0
        self._neighbours: Sequence[NodeNeighbour] = ()

    def show_picture(
        self,
        picture: ProcessPicture,
        whole: tuple[int, int],
        pass_span: tuple[int, int],
        labels: dict[int, str],
    ) -> None:
        """Draw a window."""
        if self.picture is None:
            self._at = float(pass_span[0])
        if self.window == self._whole:
            self.window = whole  # which has grown
        self.picture, self._whole, self._pass, self._labels = picture, whole, pass_span, labels
        reading = "" if picture.is_read else ", reading …"
        cut = sum(stop.took_ns for stop in picture.stops)
        stops = f", {plural(len(picture.stops), 'stop')} of {duration(cut)} cut out" if cut else ""
        length = duration(picture.end - picture.begin)
        self.subtitle(f"{length} of {duration(whole[1] - whole[0])}{stops}{reading}")
        self.redraw()

    def show_neighbours(self, span: ThreadSpan, neighbours: Sequence[NodeNeighbour]) -> None:
        """Mark producers and consumers, unless another bar is under the cursor."""
        if span == self.span:
            self._neighbours = neighbours
            self.redraw()

    @property
    def label_width(self) -> int:
        """Cells of the names of threads."""
        return max(map(len, self._labels.values()), default=2) + 3

    @property
    def columns(self) -> int:
        """Cells of the axis."""
        return max(8, self.inner_width - self.label_width)

    @property
    def span(self) -> ThreadSpan | None:
        """The bar under the cursor; None: there is none."""
        rows = self._rows_shown()
        if not rows:
            return None
        _, _, row = rows[min(self._line, len(rows) - 1)]
        return next((bar for bar in row.bars if bar.begin <= self._at < max(bar.end, 1)), None)

    def copy_text(self) -> str:
        """What is under the cursor."""
        span = self.span
        return "" if span is None else f"{title_of(span)} {duration(span.end - span.begin)}"

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """The axis, a line of a thread, or what is under the cursor."""
        del width
        if self.picture is None:
            return ([Span(" reading …", "muted")] if y == 0 else []), ""
        height = self.scrollable_content_region.height
        if y == 0:
            return self._axis(), ""
        if y >= height - 2:
            return (self._said() if y == height - 2 else self._said_of_neighbours()), ""
        rows = self._rows_shown()
        place = y - 1 + self._first_line(height - 3)
        if place >= len(rows):
            return [], ""
        return self._drawn(place, *rows[place]), ""

    # Keys and mouse.

    def action_zoom(self, factor: float) -> None:
        """Show ``factor`` times as much time, around the cursor."""
        window = self._window()
        if window is not None:
            self._want(window.zoomed(factor, self._at, self._whole))

    def action_fit(self) -> None:
        """Show the pass that is open; again, the whole process."""
        if self.picture is not None:
            is_pass = (self.picture.begin, self.picture.end) == self._pass
            self.window = self._whole if is_pass else None
            self.post_message(self.Changed())

    def action_pan(self, share: float) -> None:
        """Move on by a share of what is shown."""
        window = self._window()
        if window is not None:
            panned = window.panned(share * window.columns, self._whole)
            self._at += panned.begin - window.begin
            self._want(panned)

    def action_move(self, by: int) -> None:
        """Move the cursor by a cell."""
        window = self._window()
        if window is not None:
            self._to(min(max(self._at + by * window.ns_per_column, self._whole[0]), self._whole[1]))

    def action_bar(self, by: int) -> None:
        """Go to the next or previous bar of the line."""
        rows = self._rows_shown()
        bars = rows[min(self._line, len(rows) - 1)][2].bars if rows else []
        begins = [bar.begin for bar in bars]
        ahead = [at for at in begins if (at > self._at if by > 0 else at < self._at)]
        if ahead:
            self._to(float(ahead[0 if by > 0 else -1]))
        else:
            self.notify("There is no other bar there on this line.")

    def action_line(self, by: int) -> None:
        """Go to another line."""
        self._line = min(max(self._line + by, 0), max(0, len(self._rows_shown()) - 1))
        self._to(self._at)

    def action_mark(self, side: int) -> None:
        """Begin or end a stretch at the cursor."""
        self.range[side] = int(self._at)
        begin, end = self.range
        if begin is not None and end is not None and begin >= end:
            self.range[1 - side] = None
        self.redraw()

    def action_open(self) -> None:
        """Look at what is under the cursor."""
        self.post_message(self.SpanOpened())

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Put the cursor there; with shift, begin a stretch."""
        if event.button == 1:
            self.capture_mouse()
            self._point(event)
            if event.shift:
                self.range = [int(self._at), None]

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the cursor; with shift, the end of the stretch."""
        if self.app.mouse_captured is self:
            self._point(event)
            if event.shift and self.range[0] is not None:
                self.action_mark(1)

    def on_mouse_up(self) -> None:
        """Let the mouse go."""
        self.release_mouse()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zoom in."""
        event.stop()
        self.action_zoom(0.5)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out."""
        event.stop()
        self.action_zoom(2.0)

    def _point(self, event: events.MouseEvent) -> None:
        offset = event.get_content_offset_capture(self)
        window = self._window()
        if window is None:
            return
        height = self.scrollable_content_region.height
        if 1 <= offset.y < height - 2:
            place = offset.y - 1 + self._first_line(height - 3)
            self._line = min(place, max(0, len(self._rows_shown()) - 1))
        column = min(max(offset.x - self.label_width, 0), window.columns - 1)
        self._to(window.time(column + 0.5))

    def _to(self, at: float) -> None:
        self._at = at
        self._neighbours = ()
        window = self._window()
        if window is not None:
            showing = window.showing(int(at), self._whole)
            if showing is not window:
                self._want(showing)
        self.redraw()
        self.post_message(self.Changed())

    def _want(self, window: Window) -> None:
        self.window = int(window.begin), max(int(window.end), int(window.begin) + 1)
        self.post_message(self.Changed())

    def _window(self) -> Window | None:
        if self.picture is None:
            return None
        begin, end = self.window or (self.picture.begin, self.picture.end)
        return Window(begin, end, self.columns)

    # Drawing.

    def _rows_shown(self) -> list[tuple[ProcessLane, int, LaneRow]]:
        lanes = [] if self.picture is None else self.picture.lanes
        return [(lane, depth, row) for lane in lanes for depth, row in enumerate(lane.rows)]

    def _first_line(self, height: int) -> int:
        return max(0, min(self._line - height // 2, len(self._rows_shown()) - height))

    def _drawn_window(self) -> Window:
        picture = self.picture
        if picture is None:
            raise RuntimeError("there is no picture yet")
        return Window(picture.begin, picture.end, picture.columns)

    def _axis(self) -> Line:
        window = self._drawn_window()
        cells: list[_Cell] = [(" ", "muted")] * window.columns
        free = 0
        for at, text in ticks(window.begin, window.end, max(2, window.columns // 14)):
            column = window.column(at)
            if free <= column and column + len(text) + 1 <= window.columns:
                for place, char in enumerate(f"╵{text}", start=column):
                    cells[place] = char, "muted"
                free = column + len(text) + 2
        for stop in () if self.picture is None else self.picture.stops:
            _put(cells, window.column(stop.at), "┆", "breakpoint")
        for edge, glyph in zip(self.range, "[]", strict=True):
            if edge is not None:
                _put(cells, window.column(edge), glyph, "match")
        _put(cells, window.column(self._at), "▼", "playhead")
        return [Span(" " * self.label_width), *_spans(cells)]

    def _drawn(self, place: int, lane: ProcessLane, depth: int, row: LaneRow) -> Line:
        window = self._drawn_window()
        cells: list[_Cell] = []
        for share, idle in zip(row.density, lane.idle, strict=True):
            if share > 0.01:
                cells.append((_SHADES[min(int(share * 4), 3)], "lane-past"))
            else:
                cells.append(("·" if depth == 0 and idle > 0.5 else " ", "muted"))
        for number, bar in enumerate(row.bars):
            _draw_bar(cells, bar, window, is_odd=number % 2 == 1)
        for one in self._neighbours:
            if one.thread == lane.thread and any(
                bar.kind is SpanKind.NODE and bar.begin <= one.begin < max(bar.end, bar.begin + 1)
                for bar in row.bars
            ):
                _put(cells, window.column(one.begin), "↗" if one.is_producer else "↘", "match")
        if place == self._line:
            column = window.column(self._at)
            if 0 <= column < len(cells) and not cells[column][1].endswith("-name"):
                cells[column] = "┃", "playhead"
        label = self._labels.get(lane.thread, f"T{lane.thread}") if depth == 0 else ""
        mark = "▶ " if place == self._line else "  "
        room = self.label_width - 2
        return [Span(mark, "playhead"), Span(left(label, room), "name"), *_spans(cells)]

    def _said(self) -> Line:
        span = self.span
        if span is None:
            return [Span(f"  {duration(int(self._at))}: no bar under the cursor", "muted")]
        text = f"  {title_of(span)}, {span.kind.value}, {duration(span.end - span.begin)}"
        if span.kind is SpanKind.NODE:
            text += f", node {span.node} of backward #{span.graph_task}"
            text += f", {clean(span.module)}" if span.module else ""
        return [Span(text, "name")]

    def _said_of_neighbours(self) -> Line:
        span = self.span
        if span is None or not self._neighbours:
            return []
        said = []
        for is_producer, word in ((True, "↗ from"), (False, "↘ to")):
            mine = [one for one in self._neighbours if one.is_producer == is_producer]
            named = [
                f"{clean(one.name)} ({self._labels.get(one.thread, f'T{one.thread}')},"
                f" {_apart(span, one)})"
                for one in mine[:3]
            ]
            if named:
                more = f" and {len(mine) - 3} more" if len(mine) > 3 else ""
                said.append(f"{word} {', '.join(named)}{more}")
        return [Span("  " + " · ".join(said), "place")]


def _apart(span: ThreadSpan, one: NodeNeighbour) -> str:
    if one.is_producer:
        return f"{duration(max(0, span.begin - one.end))} before"
    return f"{duration(max(0, one.begin - span.end))} after"


def _put(cells: list[_Cell], column: int, glyph: str, look: str) -> None:
    if 0 <= column < len(cells):
        cells[column] = glyph, look


def _draw_bar(cells: list[_Cell], bar: ThreadSpan, window: Window, *, is_odd: bool) -> None:
    first = max(0, window.column(bar.begin))
    last = min(len(cells), max(window.column(bar.end), first + 1))
    look = _LOOKS[bar.kind]
    if bar.kind is SpanKind.NODE and is_odd:
        look = "lane-past-other"
    if last - first < _NAME_FROM:
        for place in range(first, last):
            cells[place] = "█", look
        return
    text = left(title_of(bar), last - first - 1)
    for place, char in enumerate(text.ljust(last - first), start=first):
        if place < last:
            cells[place] = char, f"{look}-name"


def _spans(cells: Sequence[_Cell]) -> Line:
    line: Line = []
    for char, look in cells:
        if line and line[-1].look == look:
            line[-1] = Span(line[-1].text + char, look)
        else:
            line.append(Span(char, look))
    return line


class ProcessSums(LineList):
    """What the time of a stretch was spent on."""

    HEADING = "Sum"
    DRAWS = ()
    HELP = ProcessLanes.HELP
    can_focus = True

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        hint = " s sums up what is shown, or the stretch that [ and ] have chosen."
        self._lines: list[Line] = [[Span(hint, "muted")]]
        self.line_count = 1

    def show_sums(self, sums: PartTimes, labels: dict[int, str]) -> None:
        """List them."""
        self._lines = [*_lines_of(sums, labels)]
        self.line_count = len(self._lines)
        self.subtitle(f"{duration(sums.end - sums.begin)} from {duration(sums.begin)} on")
        self.redraw()

    def line(self, index: int, width: int) -> Line:
        """One of them."""
        del width
        return self._lines[index]


def _lines_of(sums: PartTimes, labels: dict[int, str]) -> list[Line]:
    whole = max(1, sums.end - sums.begin)
    found: list[Line] = []
    for thread, parts in sums.threads.items():
        found.append([Span(f" {labels.get(thread, f'T{thread}')}", "heading")])
        for name, took in sorted(parts.items(), key=lambda part: -part[1]):
            if took:
                found.append(_sum_line(name, took, whole, ""))
    tables = (
        ("Modules", {n: (f + b, _both(f, b))
                     for n, (f, b) in sums.modules.items()}),
        ("Types of nodes", {n: (t, f"{c:,}x") for n, (t, c) in sums.types.items()}),
        ("Optimizers", {n: (t, plural(c, "step")) for n, (t, c) in sums.steps.items()}),
    )  # fmt: skip
    for heading, rows in tables:
        if rows:
            found.append([Span(f" {heading}", "heading")])
            for name, (took, said) in sorted(rows.items(), key=lambda row: -row[1][0]):
                found.append(_sum_line(clean(name) or "(no module)", took, whole, said))
    return found


def _sum_line(name: str, took: int, whole: int, said: str) -> Line:
    return [
        Span(f"   {right(duration(took), 9)} {right(f'{took / whole:.1%}', 6)}  ", "number"),
        Span(tail(name, 28), "name"),
        Span(f"  {said}", "muted"),
    ]


def _both(forward: int, backward: int) -> str:
    parts = (("forward", forward), ("backward", backward))
    return ", ".join(f"{name} {duration(took)}" for name, took in parts if took)
