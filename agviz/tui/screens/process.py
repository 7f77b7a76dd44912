"""The screen of a process: everything that was recorded on one axis of time."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Static

from agviz.analysis.process_timeline import SpanKind
from agviz.tui.hints import Hints
from agviz.tui.modes import ModeBar, ModeScreen
from agviz.tui.panels.panel import Panels
from agviz.tui.panels.process import ProcessLanes, ProcessSums
from agviz.tui.process_reading import place_of, read_neighbours, read_window, sum_up
from agviz.tui.reader_thread import Start
from agviz.tui.screens.help import Help, keys_of
from agviz.tui.stack import is_open, leave
from agviz.words.safe import clean
from agviz.words.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult

    from agviz.analysis.process_timeline import PartTimes, ProcessTimeline, ThreadSpan
    from agviz.tui.model import LoadedPass
    from agviz.tui.process_reading import NeighboursRead, SumsRead, TimelineRead
    from agviz.tui.reader_thread import ReaderThread

_AROUND: Final = 5
"""Lines beside those of threads: borders, the axis, what is under the cursor."""
_LEAST: Final = 8
_SHARE: Final = 0.65
"""Of the lines, what the lanes may have."""
_SECONDS_BETWEEN_LOOKS: Final = 1.0
"""At a file that grows."""
_SUMMED_AT_ONCE: Final = 50_000
"""Events of a pass up to which its sum is there without being asked for: some ten ms."""


class ProcessScreen(ModeScreen[Start | None]):
    """Opens over the trace, at the pass that is open; its result is the place that is wanted.

    Args:
        recording: the pass that is open.
        reader: the thread that reads the file.
    """

    MODE = "Timeline"
    AUTO_FOCUS = "#process-lanes"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sum", "Sum up", id="process.sum"),
        Binding("tab", "app.focus_next", "Other panel", show=False, id="process.panel"),
        Binding("escape,T", "back", "Back", id="process.back"),
        Binding("y", "copy", "Copy", show=False, id="process.copy"),
        Binding("question_mark,f1", "help", "Help", id="process.help"),
        Binding("q", "app.quit", "Quit", id="process.quit"),
    ]

    def __init__(self, recording: LoadedPass, reader: ReaderThread) -> None:
        super().__init__()
        self._recording = recording
        self._reader = reader
        self._timeline: ProcessTimeline | None = None
        self._is_asked = False
        self._is_stale = False
        self._is_renewing = False
        self._shown: tuple[bool, tuple[int, int] | None] = False, None
        """Whether all was known of what is shown, and the window it is of."""
        self._asked_about: ThreadSpan | None = None
        self._most_rows = 0
        self._sums: Iterator[PartTimes | None] | None = None
        """The last one that was wanted."""

    def compose(self) -> ComposeResult:
        """Title, lanes, sums, hints."""
        with Horizontal(id="head"):
            yield Static("", id="process-title", markup=False)
            yield ModeBar("Timeline")
        with Panels(id="process"):
            yield ProcessLanes(id="process-lanes")
            yield ProcessSums(id="process-sums")
        yield Hints(id="hints")

    def on_mount(self) -> None:
        """Read."""
        name = clean(PurePath(self._recording.path).name)
        line = Text.assemble(("agviz", "bold"), f"  {name}  timeline of the process")
        line.no_wrap, line.overflow = True, "ellipsis"
        self.query_one("#process-title", Static).update(line)

    def on_resize(self) -> None:
        """Draw in other cells."""
        self.call_after_refresh(self._ask)

    def renew(self, file: int) -> None:
        """Take over what has come to the file, once the last look at it is some time ago."""
        if file == self._recording.key.file and not self._is_renewing:
            self._is_renewing = True
            self.set_timer(_SECONDS_BETWEEN_LOOKS, self._renew)

    def _renew(self) -> None:
        self._is_renewing = False
        self._ask()

    # What the reader thread found.

    def _ask(self) -> None:
        """Ask for the window that is wanted by now; one question at a time."""
        if self._is_asked:
            self._is_stale = True
            return
        self._is_asked, self._is_stale = True, False
        lanes = self.query_one(ProcessLanes)
        question = read_window(self._timeline, lanes.window, lanes.columns)
        self._reader.ask(question, self._take)

    def _take(self, message: TimelineRead) -> None:
        if not is_open(self):
            return
        self._is_asked = False
        self._timeline = message.timeline
        lanes = self.query_one(ProcessLanes)
        # Of a file that has grown, what was known is shown until as much is known again.
        waits = not message.picture.is_read and self._shown == (True, message.window)
        if lanes.window == message.window and not waits:
            self._shown = message.picture.is_read, message.window
            active = message.timeline.active
            lanes.show_picture(message.picture, active, message.pass_span, self._labels())
            self._fit(sum(len(lane.rows) for lane in message.picture.lanes))
            self._ask_neighbours()
            is_short = self._recording.event_count <= _SUMMED_AT_ONCE
            if self._sums is None and message.picture.is_read and is_short:
                self.action_sum()
        is_other = lanes.window != message.window or message.picture.columns != lanes.columns
        if self._is_stale or is_other or not message.picture.is_read:
            self._ask()

    def _ask_neighbours(self) -> None:
        span = self.query_one(ProcessLanes).span
        is_node = span is not None and span.kind is SpanKind.NODE
        if span is not None and is_node and span != self._asked_about and self._timeline:
            self._asked_about = span
            self._reader.ask(read_neighbours(self._timeline, span), self._take_neighbours)
        elif not is_node:
            self._asked_about = None

    def _take_neighbours(self, message: NeighboursRead) -> None:
        if is_open(self):
            self.query_one(ProcessLanes).show_neighbours(*message)

    def _take_sums(self, message: SumsRead) -> None:
        if not is_open(self) or self._timeline is None or message.sums is not self._sums:
            return
        if message.found is None:
            self._reader.ask(sum_up(self._timeline, message.sums), self._take_sums)
        else:
            self.query_one(ProcessSums).show_sums(message.found, self._labels())

    # What the user does.

    def on_process_lanes_changed(self) -> None:
        """Read what is wanted now."""
        lanes = self.query_one(ProcessLanes)
        shown = lanes.picture
        wanted = lanes.window
        if shown is None or wanted != (shown.begin, shown.end):
            self._ask()
        self._asked_about = None
        self._ask_neighbours()

    def on_process_lanes_span_opened(self) -> None:
        """Look at a node or a pass."""
        span = self.query_one(ProcessLanes).span
        if span is None or span.graph_task < 0:
            self.notify("No pass, module or node is under the cursor.")
        else:
            self._reader.ask(place_of(span, self._recording.key.file), self._open)

    def _open(self, start: Start) -> None:
        leave(self, start)

    def action_sum(self) -> None:
        """Sum up the stretch that was chosen, or what is shown."""
        lanes = self.query_one(ProcessLanes)
        if self._timeline is None or lanes.picture is None:
            return
        begin, end = lanes.range
        begin = lanes.picture.begin if begin is None else begin
        end = lanes.picture.end if end is None else end
        self.query_one(ProcessSums).subtitle(f"summing up {duration(end - begin)} …")
        self._sums = self._timeline.times(begin, end)
        self._reader.ask(sum_up(self._timeline, self._sums), self._take_sums)

    def action_back(self) -> None:
        """Forget the stretch, or else go back to the pass."""
        lanes = self.query_one(ProcessLanes)
        if any(at is not None for at in lanes.range):
            lanes.range = [None, None]
            lanes.redraw()
        else:
            self.dismiss(None)

    def action_copy(self) -> None:
        """Copy what is under the cursor."""
        text = self.query_one(ProcessLanes).copy_text()
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"Copied: {text}", timeout=3, markup=False)

    def action_help(self) -> None:
        """Explain the lanes and the keys."""
        here, everywhere = keys_of(self, self.query_one(ProcessLanes))
        self.app.push_screen(
            Help(ProcessLanes.HEADING, ProcessLanes.HELP, [("Keys", here + everywhere)], ())
        )

    def _fit(self, rows: int) -> None:
        """Give the lanes the lines that they have needed so far, and the sums the rest."""
        self._most_rows = max(self._most_rows, rows)
        most = max(_LEAST, int(self.size.height * _SHARE))
        height = min(max(self._most_rows + _AROUND, _LEAST), most)
        self.query_one(ProcessLanes).styles.height = height

    def _labels(self) -> dict[int, str]:
        threads = () if self._timeline is None else self._timeline.threads
        return {thread: f"T{thread}" for thread in threads}
