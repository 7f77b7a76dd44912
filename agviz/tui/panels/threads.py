"""A lane per thread with the nodes it executed, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.tui.model import State
from agviz.tui.panels.panel import Panel
from agviz.tui.text import Line, Span, left
from agviz.tui.timeline import Lane, Window
from agviz.words.units import duration, plural, ticks

if TYPE_CHECKING:
    from textual import events

    from agviz.tui.model import OtherExecution, View

_ZOOM = Binding.Group("Zoom", compact=True)

_NAME_FROM = 5
"""A block of this many cells has room for its name."""

_MOST_LINES = 3
"""A lane is never higher than this."""


class Threads(Panel):
    """Lanes over a common axis of time, with the playhead across them."""

    HEADING = "Threads"
    DRAWS = ("recording", "moment", "thread", "stopped_threads", "other_tasks")
    HELP = (
        "A lane per thread that took part, with the nodes it executed in time. █ has happened at"
        " the playhead, ░ is still to come, ● runs, ! made something non-finite, ✗ failed. ▼ is"
        " the playhead; the mouse puts it there, and moves it while its button is held.\n\n"
        "0 shows the whole pass, and again the timeline of the whole process.\n\n"
        "The lane with ▶ is the one that < and > chose: n and N then go by its nodes only.\n\n"
        "Of a program that runs, ■ is a thread that is stopped, and ▒ what a thread did in"
        " another backward pass meanwhile; the mouse goes there."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "plus,equals_sign",
            "zoom(0.5)",
            "Zoom in",
            group=_ZOOM,
            id="threads.zoom-in",
        ),
        Binding("minus", "zoom(2)", "Zoom out", group=_ZOOM, id="threads.zoom-out"),
        Binding("0", "fit", "Whole pass, then process", group=_ZOOM, id="threads.fit"),
        Binding("l,right,shift+right", "pan(0.25)", "Later", show=False, id="threads.pan-right"),
        Binding("h,left,shift+left", "pan(-0.25)", "Earlier", show=False, id="threads.pan-left"),
        Binding("g,home", "pan(-1e9)", "Begin", show=False, id="threads.begin"),
        Binding("G,end", "pan(1e9)", "End", show=False, id="threads.end"),
        Binding(
            "j,down",
            "screen.command('thread.next')",
            "Next thread",
            show=False,
            id="threads.next-thread",
        ),
        Binding(
            "k,up",
            "screen.command('thread.previous')",
            "Previous thread",
            show=False,
            id="threads.prev-thread",
        ),
    ]

    class TimePicked(Message):
        """The user points at an execution: the playhead is to go to its start."""

        def __init__(self, seq: int) -> None:
            super().__init__()
            self.seq = seq

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._lanes: dict[int, Lane] = {}
        self._beside: dict[int, Lane] = {}
        """What threads did in other graph tasks."""
        self._known = -1
        """Version of the columns that the lanes are of."""
        self._span = (0, 1)
        self._window: Window | None = None
        self._picked = -1
        """Where the mouse was last."""

    def take_over(self, view: View, before: View | None) -> None:
        """Draw ``view``; the window goes with the playhead."""
        recording, columns = view.recording, view.recording.columns
        if before is None or not recording.is_same(before.recording):
            self._window = None
            self._known = -1
        has_grown = self._known != columns.version or view.span_ns != self._span
        if has_grown or view.threads != list(self._lanes):
            self._known, self._span = columns.version, view.span_ns
            nothing = Lane((), (), (), 0)
            self._lanes = {
                thread: columns.lane(thread, self._span[1])
                if thread in columns.by_thread
                else nothing
                for thread in view.threads
            }
        if has_grown or before is None or before.other_tasks is not view.other_tasks:
            beside = {} if view.other_tasks is None else view.other_tasks.threads
            self._beside = {
                thread: executions.lane(self._span[1]) for thread, executions in beside.items()
            }
        if self._window is not None and (before is None or before.moment is not view.moment):
            self._window = self._window.showing(self._playhead_ns, view.span_ns)
        self._describe()

    def _describe(self) -> None:
        begin, end = self.shown.span_ns
        lines = max(1, self.scrollable_content_region.height - 1)
        reading = "" if self.shown.recording.columns.is_complete else ", reading …"
        hidden = f", {lines} shown" if lines < len(self._lanes) else ""
        self.subtitle(
            f"{plural(len(self._lanes), 'thread')}{hidden}, {duration(end - begin)}{reading}"
        )

    def on_resize(self) -> None:
        """Keep the stretch of time that is shown."""
        if self._window is not None:
            columns = self._columns
            self._window = Window(self._window.begin, self._window.end, columns)
        if self.view is not None:
            self._describe()

    def copy_text(self) -> str:
        """The stretch of time that is shown."""
        if self.view is None:
            return ""
        window, begin = self._shown, self.view.recording.task.begin_ns
        return f"{duration(int(window.begin - begin))} to {duration(int(window.end - begin))}"

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """The axis or a line of a lane."""
        del width
        if self.view is None:
            return [], ""
        if y == 0:
            return self._axis(), ""
        thread, first = self._lane_at(y)
        return self._now(y) if thread is None else self._lane(thread, first=first), ""

    def action_zoom(self, factor: float) -> None:
        """Show ``factor`` times as much time, around the playhead where that is in sight."""
        if self.view is None:
            return
        window = self._shown
        around: float = self._playhead_ns
        if not window.begin <= around <= window.end:
            around = (window.begin + window.end) / 2
        self._window = window.zoomed(factor, around, self.view.span_ns)
        self.redraw()

    def action_fit(self) -> None:
        """Show the whole graph task; again, the whole process."""
        if self._window is None and self.view is not None:
            self.call_later(self.run_action, "screen.command('process.show')")
        self._window = None
        self.redraw()

    def action_pan(self, share: float) -> None:
        """Move on by a share of what is shown."""
        if self.view is not None:
            columns = share * self._columns
            self._window = self._shown.panned(columns, self.view.span_ns)
            self.redraw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Put the playhead on the execution that the mouse points at, and follow the mouse."""
        if event.button == 1:
            self.capture_mouse()
            self._picked = -1
            self._pick(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Scrub."""
        if self.app.mouse_captured is self:
            self._pick(event)

    def on_mouse_up(self) -> None:
        """Let the mouse go."""
        self.release_mouse()

    def _pick(self, event: events.MouseEvent) -> None:
        offset = event.get_content_offset_capture(self)
        if self.view is None:
            return
        thread, _ = self._lane_at(offset.y)
        thread = self.view.recording.task.thread if thread is None else thread
        lane = self._lanes.get(thread)
        column = min(max(offset.x - self._label_width, -1), self._columns)
        place = lane.at(self._shown.time(column + 1)) if lane else None
        cells = self._cells(thread) if thread in self._lanes else []
        elsewhere = cells[column][1] if 0 <= column < len(cells) else None
        if elsewhere is not None:
            if elsewhere.seq != self._picked:
                self._picked = elsewhere.seq
                self.post_message(self.ElsewherePicked(elsewhere.seq, elsewhere.graph_task))
        elif place is not None:
            columns = self.view.recording.columns
            seq = columns.seqs[columns.by_thread[thread][place] - 1]
            if seq != self._picked:
                self._picked = seq
                self.post_message(self.TimePicked(seq))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zoom in, or pan where shift is held."""
        self._wheel(event, 0.5, -0.1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out, or pan where shift is held."""
        self._wheel(event, 2.0, 0.1)

    def _wheel(self, event: events.MouseEvent, factor: float, share: float) -> None:
        event.stop()
        if event.shift:
            self.action_pan(share)
        else:
            self.action_zoom(factor)

    @property
    def _playhead_ns(self) -> int:
        time_ns = self.shown.moment.time_ns
        return self.shown.recording.task.begin_ns if time_ns is None else time_ns

    @property
    def _shown(self) -> Window:
        begin, end = self.shown.span_ns
        return self._window or Window(begin, end, self._columns)

    @property
    def _label_width(self) -> int:
        labels = [self.shown.recording.thread_label(thread) for thread in self._lanes]
        return max((len(label) for label in labels), default=0) + 3

    @property
    def _columns(self) -> int:
        return max(1, self.inner_width - self._label_width)

    @property
    def _lane_lines(self) -> int:
        """Lines of each lane; where they can be two, there is room for :meth:`_now`, too."""
        lines, lanes = self.scrollable_content_region.height - 1, max(1, len(self._lanes))
        beside_now = (lines - lanes - 1) // lanes
        return min(_MOST_LINES, max(1, beside_now if beside_now > 1 else lines // lanes))

    def _lane_at(self, y: int) -> tuple[int | None, bool]:
        """The thread on line ``y``, and whether it is the first line of its lane."""
        index, line = divmod(y - 1, self._lane_lines)
        threads = list(self._lanes)[self._first_lane :]
        if not 0 <= index < len(threads):
            return None, False
        return threads[index], line == 0

    @property
    def _first_lane(self) -> int:
        """Where there are more lanes than lines, those around the thread of the playhead."""
        lines = max(1, self.scrollable_content_region.height - 1)
        surplus = len(self._lanes) - lines
        if surplus <= 0:
            return 0
        thread = self.shown.thread
        if thread is None and self.shown.moment.event is not None:
            thread = self.shown.moment.event.thread
        middle = list(self._lanes).index(thread) if thread in self._lanes else 0
        return min(max(0, middle - lines // 2), surplus)

    def _now(self, y: int) -> Line:
        """Where there is room below the lanes: what each thread does at the playhead.

        Where there is room for some only, those that do something come first.
        """
        above = 1 + self._lane_lines * len(self._lanes) + 1
        index = y - above
        threads = list(self._lanes)
        if not 0 <= index < len(threads):
            return []
        recording, running = self.shown.recording, self.shown.moment.state.running()
        if self.scrollable_content_region.height - above < len(threads):
            threads.sort(key=lambda thread: not running.get(thread))
        thread = threads[index]
        tasks = running.get(thread, ())
        inside = [
            recording.label(t.node)
            if t.graph_task == recording.key.graph_task
            else f"node {t.node} of backward #{t.graph_task}"
            for t in tasks
        ]
        label = Span("  " + left(recording.thread_label(thread), self._label_width - 2), "name")
        if not inside:
            return [label, Span("idle", "muted")]
        glyph = Span(f"{State.RUNNING.glyph} ", State.RUNNING.value)
        return [label, glyph, Span(" > ".join(inside), "name")]

    def _axis(self) -> Line:
        window, begin = self._shown, self.shown.recording.task.begin_ns
        cells = [" "] * window.columns
        playhead = min(window.column(self._playhead_ns), window.columns - 1)
        times = ticks(window.begin - begin, window.end - begin, max(2, window.columns // 14))
        free = 0
        for time, text in times:
            column = window.column(time + begin)
            end = column + len(text) + 1
            if free <= column and end <= window.columns and not column <= playhead <= end:
                cells[column:end] = f"╵{text}"
                free = end
        line = [Span(" " * self._label_width)]
        if playhead < 0 or self._playhead_ns > window.end:
            return [*line, Span("".join(cells), "muted")]
        return [
            *line,
            Span("".join(cells[:playhead]), "muted"),
            Span("▼", "playhead"),
            Span("".join(cells[playhead + 1 :]), "muted"),
        ]

    def _lane(self, thread: int, *, first: bool) -> Line:
        view, window = self.shown, self._shown
        label = view.recording.thread_label(thread) if first else ""
        mark = "▶" if first and view.thread == thread else " "
        line = [Span(f"{mark} ", "playhead")]
        if first and thread in view.stopped_threads:
            line = [Span(mark, "playhead"), Span("■", "breakpoint")]
        line.append(Span(left(label, self._label_width - 2), "name"))
        cells = self._cells(thread)
        playhead = window.column(self._playhead_ns)
        column = 0
        while column < len(cells):
            cell, end = cells[column], column + 1
            while end < len(cells) and cells[end] == cell:
                end += 1
            index, elsewhere = cell
            if elsewhere is not None:
                text = "▒" * (end - column)
                if end - column >= _NAME_FROM and first:
                    text = left(f"▒{elsewhere.name}", end - column).replace(" ", "▒")
                line += _with_playhead(text, "lane-future", playhead - column)
            elif index < 0:
                line += _with_playhead("·" * (end - column), "muted", playhead - column)
            else:
                line.append(self._block(thread, index, end - column, first=first))
            column = end
        return line

    def _cells(self, thread: int) -> list[tuple[int, OtherExecution | None]]:
        """For every cell the execution it shows, or -1, and what is there in other graph tasks."""
        own = self._lanes[thread].cells(self._shown, self._playhead_ns)
        view, lane = self.shown, self._beside.get(thread)
        if lane is None or view.other_tasks is None:
            return [(index, None) for index in own]
        other, executions = lane.cells(self._shown), view.other_tasks.threads[thread]
        return [
            (index, executions[place] if index < 0 <= place else None)
            for index, place in zip(own, other, strict=True)
        ]

    def _block(self, thread: int, index: int, width: int, *, first: bool) -> Span:
        columns = self.shown.recording.columns
        node = columns.started[columns.by_thread[thread][index] - 1]
        state = self.shown.moment.node_state(node)
        match state:
            case State.WAITING | State.READY:
                fill, look = "░", "lane-future"
            case State.RUNNING:
                fill, look = "●", "lane-now"
            case State.NONFINITE | State.FAILED:
                fill, look = state.glyph, state.value
            case _:
                fill, look = "█", "lane-past-other" if index % 2 else "lane-past"
        if width < _NAME_FROM or not first:
            return Span(fill * width, look)
        name = columns.facts(node).short_name
        text = left(f"{state.glyph}{name}", min(width, len(name) + 1))
        if fill == "█":
            return Span(text.ljust(width), f"{look}-name")
        return Span(text.ljust(width, fill), look)


def _with_playhead(text: str, look: str, playhead: int) -> Line:
    if not 0 <= playhead < len(text):
        return [Span(text, look)]
    return [
        Span(text[:playhead], look),
        Span("┃", "playhead"),
        Span(text[playhead + 1 :], look),
    ]
