"""The screen of a whole run: every backward pass, and what happened in the one under the cursor."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from agviz.tui.hints import Hints
from agviz.tui.model import Key
from agviz.tui.modes import ModeBar, ModeScreen
from agviz.tui.pairing import PairFound, pair_with
from agviz.tui.panels.files import FileList, FileRow
from agviz.tui.panels.panel import Panels
from agviz.tui.panels.run import RunChart, RunList
from agviz.tui.panels.what_happened import WhatHappened
from agviz.tui.reader_thread import Start
from agviz.tui.run_reading import ORDERS, judge, order_run, place_in, read_run
from agviz.tui.screens.help import Help, keys_of
from agviz.tui.screens.tour import Tour
from agviz.tui.size_classes import take_size_classes
from agviz.tui.stack import is_open, leave
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult

    from agviz.analysis.pass_marks import PassMark
    from agviz.analysis.run_table import RunTable
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Meta
    from agviz.tui.flow_reading import StepPlace
    from agviz.tui.model import LoadedPass
    from agviz.tui.reader_thread import ReaderThread
    from agviz.tui.run_reading import PassJudged, RunOrdered, RunRead

T = TypeVar("T")

_AROUND: Final = 2
"""Lines that are no panels: title and hints."""
_CHART: Final = 5
_LEAST: Final = 5
_LEAST_ANSWER: Final = 8
_TALL: Final = 30
_MORE_CHART: Final = {1: 0, 2: 5, 3: 8}
"""Lines that bars of so many lines need beside."""
_SHARE: Final = 0.6
_SHARE_OF_LOW: Final = 0.45
"""Of the lines, what the passes have at least; on a low screen what happened comes first."""
_SHARE_OF_PAUSES: Final = 20
"""A list that grows is read anew for at most one part of so many of the time."""
_LONGEST_PAUSE_S: Final = 3.0
_REST_S: Final = 0.08
"""The cursor rests for so long before it is asked what happened in a pass."""


class RunScreen(ModeScreen[Start | PairFound | None]):
    """Opens over the trace; its result is the place or the passes to be seen.

    Args:
        key: the pass that is open, or is about to be.
        opened: gives what was read of it; None: nothing yet.
        reader: the thread that reads the files.
        files: that were opened.
        when_listed: called once passes are listed.
    """

    MODE = "Run"
    AUTO_FOCUS = "#run-list"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "files", "Files", tooltip="Files, or passes", id="run.files"),
        Binding("x", "wrong(1)", "Next not good", id="run.next-wrong"),
        Binding("X", "wrong(-1)", "Previous not good", show=False, id="run.previous-wrong"),
        Binding("L", "flow", "Flow", id="run.flow"),
        Binding("s", "sort", "Sort", id="run.sort"),
        Binding("slash", "search", "Filter", id="run.filter"),
        Binding("d", "compare", "Compare", id="run.compare"),
        Binding("m", "mark", "Mark", tooltip="Mark, to compare with it", id="run.mark"),
        Binding("escape", "back", "Back", show=False, id="run.back"),
        Binding("p", "mode('Pass')", "Pass", show=False, id="run.pass"),
        Binding("y", "copy", "Copy", show=False, id="run.copy"),
        Binding("question_mark,f1", "help", "Help", id="run.help"),
        Binding("q", "app.quit", "Quit", id="run.quit"),
    ]

    def __init__(
        self,
        key: Key,
        opened: Callable[[], LoadedPass | None],
        reader: ReaderThread,
        files: Sequence[FileRow],
        when_listed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._key = key
        self._opened = opened
        self._reader = reader
        self._files = files
        self._when_listed = when_listed
        self.file = key.file
        """Of which the passes are listed."""
        self._meta: Meta | None = None
        self._table: RunTable | None = None
        self._is_measured = True
        self._is_reading = True
        self._is_stale = False
        """Whether more has come to the file since it was begun to be read on."""
        self._pause_s = 0.0
        """Before it is read on."""
        self._order = ORDERS[0]
        self._words = ""
        self._marked: int | None = None
        """The graph task with which others are compared."""
        self.judged: int | None = None
        """The graph task about which something is said."""
        self._answer = _LEAST_ANSWER
        """Lines that what happened has needed so far, on a tall screen."""

    def compose(self) -> ComposeResult:
        """Title, chart, passes, what happened, hints."""
        take_size_classes(self)
        with Horizontal(id="head"):
            yield Static("", id="run-title", markup=False)
            yield ModeBar("Run")
        with Panels(id="run"):
            yield FileList(id="run-files")
            yield RunChart(id="run-chart")
            yield RunList(id="run-list")
            yield WhatHappened(id="run-answer")
        yield Input(
            compact=True, placeholder="words: failed, nan, #31, a parameter", id="run-words"
        )
        yield Hints(id="hints")

    def on_mount(self) -> None:
        """Read, and begin at the first pass that is not good."""
        self.query_one(Input).display = False
        files = self.query_one(FileList)
        files.display = len(self._files) > 1
        files.show_files(self._files)
        files.put_cursor(self.file)
        self._show_title()
        self._ask(read_run(None), self._take_run)

    def on_resize(self) -> None:
        """Share out the room."""
        self._fit()
        self.call_after_refresh(self._show_title)

    def show_files(self, files: Sequence[FileRow]) -> None:
        """Take over how many passes files hold."""
        self._files = files
        if is_open(self):
            self.query_one(FileList).show_files(files)
            self._show_title()

    def renew(self, file: int) -> None:
        """Take over what has come to a file, once that takes a small share of the time."""
        if file != self.file or self._table is None:
            return
        self._is_stale = self._is_reading
        if not self._is_reading:
            self._is_reading = True
            self.set_timer(self._pause_s, self._read_on)

    def _read_on(self) -> None:
        if self._table is not None:
            self._ask(read_run(self._table), self._take_run)

    # What the reader thread found.

    def _ask(self, question: Callable[[Trace], T], then: Callable[[T], None]) -> None:
        """Have a question answered about the file, unless another one is listed by then."""
        file = self.file

        def take(answer: T) -> None:
            if is_open(self) and file == self.file:
                then(answer)

        self._reader.ask_file(file, question, take)

    def _take_run(self, message: RunRead) -> None:
        """Show what is known, and go on."""
        self._is_reading = not message.is_read
        is_first, before = self._table is None, self._shown_mark
        self._table, self._is_measured = message.table, message.can_be_judged
        self._pause_s = min(_SHARE_OF_PAUSES * message.took_s, _LONGEST_PAUSE_S)
        self._meta = message.meta
        self.query_one(RunChart).show_charts(message.charts)
        if is_first or (self._order == ORDERS[0] and not self._words):
            self._show(range(len(message.table)))
        self._fit()
        if is_first:
            first = next(iter(message.table.wrong), None)
            here = None
            if self.file == self._key.file:
                here = message.table.place(self._key.graph_task)
            self.query_one(RunList).put_on(first if first is not None else here or 0)
            self._mark_place()
            if self._when_listed is not None:
                self._when_listed()
                self._when_listed = None
            self.call_after_refresh(self._ask, judge(None), self._take_verdicts)
            self.post_message(Tour.Offered("run", lambda _: None))
        elif before != self._shown_mark:
            self.judged = None  # it has come to its end since
            self.on_run_list_moved()
        if not message.is_read:
            self._read_on()
        elif self._is_stale:
            self.renew(self.file)
        elif self._order != ORDERS[0] or self._words:
            self._list()
        self._show_title()

    @property
    def _shown_mark(self) -> PassMark | None:
        """What was unusual about the pass under the cursor when it was listed."""
        row = self.query_one(RunList).run_row
        return None if row is None else row.mark

    def _take_order(self, message: RunOrdered) -> None:
        """Show the rows that are wanted, unless others are by now."""
        if (message.order, message.words) == (self._order, self._words):
            self._show(message.places)
            if message.order != ORDERS[0]:
                self.query_one(RunList).action_cursor_to(0)
            self.on_run_list_moved()

    def _take_verdicts(self, message: PassJudged) -> None:
        """Say what happened, unless the cursor has gone on."""
        row = self.query_one(RunList).run_row
        if row is None and message.graph_task is None:
            self.query_one(WhatHappened).show_verdicts(message.verdicts, message.shape)
        elif row is not None and message.graph_task in {None, row.task.id}:
            self.judged = row.task.id
            self.query_one(WhatHappened).show_verdicts(message.verdicts, message.shape)
        self._fit()

    # What the user does.

    def on_file_list_file_chosen(self) -> None:
        """List the passes of another file."""
        self.file = self.query_one(FileList).cursor
        self._table, self._marked, self.judged, self._is_reading = None, None, None, True
        self.query_one(RunList).show_marked(None)
        self.query_one(WhatHappened).show_verdicts(())
        self._ask(read_run(None), self._take_run)

    def on_run_list_moved(self) -> None:
        """Ask what happened in the pass under the cursor, once it rests there."""
        place = self._mark_place()
        if place is not None:
            self.set_timer(_REST_S, lambda: self._judge(place))

    def on_run_list_pass_opened(self) -> None:
        """Look at a pass, where it is unusual if it is."""
        row = self.query_one(RunList).run_row
        if row is not None:
            self._ask(place_in(row, self.file), self._open)

    def _open(self, start: Start) -> None:
        leave(self, start)

    def on_input_changed(self, message: Input.Changed) -> None:
        """List what fits."""
        self._words = message.value.strip()
        self._list()

    def on_input_submitted(self) -> None:
        """Go on in the list."""
        self.query_one(RunList).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the list of files where there are several."""
        return (
            len(self._files) > 1 if action == "files" else super().check_action(action, parameters)
        )

    def action_files(self) -> None:
        """Go from the files to the passes, or back."""
        files, passes = self.query_one(FileList), self.query_one(RunList)
        (passes if files.has_focus else files).focus()

    def action_wrong(self, by: int) -> None:
        """Go to the next or previous pass that is not good."""
        rows = self.query_one(RunList)
        table = self._table
        if table is None:
            return
        line = rows.next_of(table.wrong, by)
        if line is not None:
            rows.put_cursor(line)
            self.on_run_list_moved()
            return
        where = "behind" if by > 0 else "before"
        self.notify(f"No pass {where} this one is marked.")

    def action_flow(self) -> None:
        """Follow the gradient to the parameter that changed most in the pass under the cursor."""
        row = self.query_one(RunList).run_row
        if row is None or row.change is None:
            self.notify("No parameter is known here whose gradient changed.")
            return
        recording = self._opened()
        if recording is None or self.file != recording.key.file:
            self.notify("Open a pass of this file first (enter); L follows a gradient in it.")
            return
        from agviz.analysis.flow import FlowTarget
        from agviz.tui.screens.flow import FlowScreen

        target = FlowTarget(row.task.id, row.change.parameter)
        self.app.push_screen(FlowScreen(recording, self._reader, target), self._open_place)

    def _open_place(self, place: StepPlace | None) -> None:
        if place is not None:
            key = Key(self.file, place.graph_task)
            leave(self, Start(key, -1 if place.seq is None else place.seq, ""))

    def action_sort(self) -> None:
        """Sort by what comes next."""
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self.query_one(RunList).subtitle(f"by {self._order} …")
        self._list()

    def action_search(self) -> None:
        """Ask which are wanted."""
        field = self.query_one(Input)
        field.display = True
        field.focus()

    def action_back(self) -> None:
        """Leave the filter, or else go to the pass that is open."""
        field = self.query_one(Input)
        if field.display:
            field.value = ""
            field.display = False
            self.query_one(RunList).focus()
        else:
            self.dismiss(None)

    def action_mark(self) -> None:
        """Mark the pass under the cursor as that with which others are compared; again: not."""
        row = self.query_one(RunList).run_row
        if row is not None:
            self._marked = None if self._marked == row.task.id else row.task.id
            self.query_one(RunList).show_marked(self._marked)

    def action_compare(self) -> None:
        """Compare the pass under the cursor with the marked one, or with one that suits it."""
        row = self.query_one(RunList).run_row
        if row is not None:
            other = None if self._marked == row.task.id else self._marked
            key = Key(self.file, row.task.id)
            self._reader.ask_files(pair_with(key, other), self._compare)

    def _compare(self, found: PairFound) -> None:
        if is_open(self):
            if found.pair is None:
                self.notify(found.said, markup=False)
            else:
                leave(self, found)

    def action_copy(self) -> None:
        """Copy the line under the cursor."""
        text = self.query_one(RunList).copy_text()
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"Copied: {text}", timeout=3, markup=False)

    def action_help(self) -> None:
        """Explain the columns and the keys."""
        files = self.query_one(FileList)
        panel = files if files.has_focus else self.query_one(RunList)
        of_list, everywhere = keys_of(self, panel)
        self.app.push_screen(Help(panel.HEADING, panel.HELP, [("Keys", of_list + everywhere)], ()))

    # Drawing.

    def _list(self) -> None:
        if self._table is not None:
            self._ask(order_run(self._table, self._order, self._words), self._take_order)

    def _mark_place(self) -> int | None:
        """Mark in the chart where the cursor is."""
        place = self.query_one(RunList).place
        if self._table is not None and place is not None:
            self.query_one(RunChart).show_place(place / max(1, len(self._table)))
        return place

    def _judge(self, place: int) -> None:
        row = self.query_one(RunList).run_row
        if self._table is None or row is None or self.query_one(RunList).place != place:
            return
        if self.judged != row.task.id:
            self._ask(judge(row.task.id), self._take_verdicts)

    def _fit(self) -> None:
        """Share out the lines: what happened gets those that the passes do not need."""
        count = 0 if self._table is None else len(self._table)
        chart = self.query_one(RunChart)
        is_tall = self.size.height >= _TALL
        chart.display = count > 1 and (is_tall or len(self._files) < 2)
        files = self.query_one(FileList)
        of_files = min(len(self._files) + 2, max(_LEAST, self.size.height // 5))
        files.styles.height = of_files
        room = self.size.height - _AROUND - (_CHART if chart.display else 0)
        if files.display:
            room -= of_files
        if is_tall:
            needed = self.query_one(WhatHappened).height_for(self.size.width)
            self._answer = max(self._answer, min(needed, int(room * (1 - _SHARE))))
            height = room - self._answer
        else:
            height = int(room * _SHARE_OF_LOW)
        height = min(count + 3, max(_LEAST, height))
        self.query_one(RunList).styles.height = height
        spare = room - height - self._answer if is_tall else 0
        chart.bar_lines = next(lines for lines in (3, 2, 1) if spare >= _MORE_CHART[lines])
        chart.styles.height = _CHART + _MORE_CHART[chart.bar_lines]

    def _show(self, places: Sequence[int]) -> None:
        if self._table is not None:
            rows = self.query_one(RunList)
            rows.show_run(self._table, places, is_measured=self._is_measured)
            of = "" if len(places) == len(self._table) else f" of {len(self._table):,}"
            reading = "" if self._table.is_read else ", reading norms …"
            rows.subtitle(f"{len(places):,}{of} by {self._order}{reading}")

    def _show_title(self) -> None:
        meta, table, name = self._meta, self._table, self._files[self.file].name
        line = Text.assemble(("agviz", "bold"), f"  {clean(name)}  ")
        line.no_wrap, line.overflow = True, "ellipsis"
        title = self.query_one("#run-title", Static)
        room = title.content_size.width
        script = clean(PurePath(meta.script).name) if meta is not None else ""
        wrong = "" if table is None or not table.wrong else f"{len(table.wrong):,} not good"
        passes, short = (
            "" if table is None else plural(len(table), *words)
            for words in (("backward pass", "backward passes"), ("pass", "passes"))
        )
        ways = [script, passes, wrong], [passes, wrong], [short, wrong]
        texts = [" · ".join(filter(None, facts)) for facts in ways]
        fitting = (text for text in texts if line.cell_len + Text(text).cell_len <= room)
        line.append(next(fitting, texts[-1] if room else texts[0]))
        torch = "" if meta is None or not meta.torch else f" · torch {clean(meta.torch)}"
        if line.cell_len + len(torch) <= room:
            line.append(torch)
        title.update(line)
