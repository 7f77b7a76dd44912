"""The choice among the graph tasks of all opened files."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from rich.segment import Segment
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.reactive import var
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input

from agviz.analysis.verdict import PassMark
from agviz.traces.rows import GraphTaskStatus
from agviz.tui.model import Key
from agviz.tui.text import left, right
from agviz.words.safe import clean
from agviz.words.units import duration, plural
from agviz_engine.events import GONE_BACK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from textual import events
    from textual.app import ComposeResult

    from agviz.traces.rows import GraphTaskRow

    Tasks = Sequence[Sequence[GraphTaskRow]]
    Marks = Sequence[Mapping[int, PassMark]]

_GLYPHS: Final = {
    PassMark.FAILED: "✗",
    PassMark.CUT: "✗",
    PassMark.UNDER_WAY: "●",
    PassMark.NON_FINITE: "!",
    PassMark.LOSS: "!",
    PassMark.NOT_MEASURED: "?",
    PassMark.WENT_BACK: "↶",
}
_ENDS: Final = {
    GraphTaskStatus.FAILED: PassMark.FAILED,
    GraphTaskStatus.CUT: PassMark.CUT,
    GraphTaskStatus.RUNNING: PassMark.UNDER_WAY,
}
_WORST: Final = {mark: place for place, mark in enumerate(PassMark)}
_ORDERS: Final = ("number", "time", "nodes", "mark")


class _Line(NamedTuple):
    """A graph task of a file; row None: the file's name."""

    file: int
    row: GraphTaskRow | None


class TaskList(ScrollView, can_focus=True):
    """Graph tasks, of which only those on the screen are ever drawn."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"tasks--cursor", "tasks--file"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", show=False, id="tasks.down"),
        Binding("k,up", "move(-1)", "Up", show=False, id="tasks.up"),
        Binding("pagedown,ctrl+d", "page(1)", "Page down", show=False, id="tasks.page-down"),
        Binding("pageup,ctrl+u", "page(-1)", "Page up", show=False, id="tasks.page-up"),
        Binding("g,home", "move_to(0)", "First", show=False, id="tasks.first"),
        Binding("G,end", "move_to(-1)", "Last", show=False, id="tasks.last"),
        Binding("enter", "open", "Open", id="tasks.open"),
    ]

    cursor: var[int] = var(0)

    class Opened(Message):
        """The user wants this graph task."""

        def __init__(self, key: Key) -> None:
            super().__init__()
            self.key = key

    def __init__(self, draw: Callable[[int, GraphTaskRow | None], Text]) -> None:
        super().__init__(id="tasks-list")
        self._draw = draw
        self._lines: list[_Line] = []

    def list(self, lines: Sequence[_Line], current: Key | None) -> None:
        """Show these lines, with the cursor on one of them."""
        self._lines = [*lines]
        self.virtual_size = Size(0, len(lines))
        places = (
            place
            for place, (file, row) in enumerate(lines)
            if row is not None and (file, row.id) == current
        )
        self.cursor = next(places, 0)
        self._move(0)
        self.refresh()

    @property
    def key(self) -> Key | None:
        """The graph task under the cursor; None: there is none."""
        if not self._lines:
            return None
        file, row = self._lines[self.cursor]
        return None if row is None else Key(file, row.id)

    def render_line(self, y: int) -> Strip:
        """A graph task, or the name of a file."""
        index, width = y + self.scroll_offset.y, self.scrollable_content_region.width
        if not self._lines and y == 0:
            return Strip([Segment(" None fits.", self.rich_style)]).adjust_cell_length(width)
        if index >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[index]
        style = self.rich_style
        if index == self.cursor:
            style += self.get_component_rich_style("tasks--cursor")
        elif line.row is None:
            style += self.get_component_rich_style("tasks--file", partial=True)
        text = self._draw(line.file, line.row)
        text.truncate(width, overflow="ellipsis")
        segments = Segment.apply_style(text.render(self.app.console), style)
        return Strip(segments).adjust_cell_length(width, style)

    def watch_cursor(self) -> None:
        """Move what marks it."""
        self.refresh()

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self._move(by)

    def action_page(self, pages: int) -> None:
        """Move the cursor by screens."""
        self._move(pages * max(1, self.scrollable_content_region.height - 1))

    def action_move_to(self, line: int) -> None:
        """Move the cursor to a line; -1 is the last one."""
        self._move((len(self._lines) if line < 0 else line) - self.cursor)

    def action_open(self) -> None:
        """Open the graph task under the cursor."""
        if self.key is not None:
            self.post_message(self.Opened(self.key))

    def on_click(self, event: events.Click) -> None:
        """Open the one that the mouse points at."""
        offset = event.get_content_offset(self)
        if offset is not None and offset.y + self.scroll_offset.y < len(self._lines):
            self._move(offset.y + self.scroll_offset.y - self.cursor)
            self.action_open()

    def _move(self, by: int) -> None:
        """Move, over names of files."""
        count = len(self._lines)
        place = min(max(self.cursor + by, 0), max(count - 1, 0))
        on, back = range(place, count), range(place, -1, -1)
        for ahead in (back, on) if by < 0 else (on, back):
            found = next((each for each in ahead if self._lines[each].row is not None), None)
            if found is not None:
                self.cursor = found
                break
        height = self.scrollable_content_region.height
        top = self.scroll_offset.y
        if self.cursor <= 1:
            self.scroll_to(y=0, animate=False)
        elif self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + height > top:
            self.scroll_to(y=self.cursor - height + 1, animate=False)


class TaskPicker(ModalScreen[Key | None]):
    """Opens over the screen on a trace; its result is the chosen graph task.

    Args:
        paths: the files.
        tasks: the graph tasks of each.
        marks: what is unusual about them, by id, file by file.
        current: the one that is shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Cancel", id="tasks.back"),
        Binding("q,t", "dismiss", "Cancel", id="tasks.cancel"),
        Binding("s", "sort", "Sort", id="tasks.sort"),
        Binding("slash", "search", "Search", id="tasks.search"),
    ]

    def __init__(
        self, paths: Sequence[Path], tasks: Tasks, marks: Marks, current: Key | None
    ) -> None:
        super().__init__()
        self._paths = paths
        self._tasks = tasks
        self._marks = marks
        self._current = current
        self._order = _ORDERS[0]

    def compose(self) -> ComposeResult:
        """One line per graph task, below its file's name."""
        with Vertical(id="tasks") as box:
            box.border_title = "Graph tasks"
            yield TaskList(self._draw)
            yield Input(
                compact=True, placeholder="part of a line: failed, grad, 31", id="tasks-search"
            )

    def on_mount(self) -> None:
        """Start at the one that is open."""
        self.query_one(Input).display = False
        self._fit()
        self.call_after_refresh(self._list)

    def renew(self, tasks: Tasks, marks: Marks) -> None:
        """Show what is known by now."""
        self._tasks, self._marks = tasks, marks
        if self.is_mounted:
            self._current = self.query_one(TaskList).key or self._current
            self._fit()
            self._list()

    def _fit(self) -> None:
        """As many lines as there are graph tasks, if there is room."""
        rows = sum(map(len, self._tasks)) + (len(self._tasks) if len(self._tasks) > 1 else 0)
        self.query_one(TaskList).styles.height = max(rows, 1)

    def _list(self) -> None:
        """List those that are wanted, in the order that is."""
        words = self.query_one(Input).value.lower().split()
        lines: list[_Line] = []
        number = 0
        for file, rows in enumerate(self._tasks):
            found = [row for row in rows if self._fits(file, row, words)] if words else [*rows]
            number += len(found)
            found.sort(key=self._key(file))
            if len(self._tasks) > 1 and (found or not words):
                lines.append(_Line(file, None))
            lines += [_Line(file, row) for row in found]
        self.query_one(TaskList).list(lines, self._current)
        of = f"{number:,} of {sum(map(len, self._tasks)):,}, " if words else ""
        self.query_one(
            "#tasks"
        ).border_subtitle = (
            f"{of}by {self._order} · enter opens, s sorts, / searches, escape leaves"
        )

    def _key(self, file: int) -> Callable[[GraphTaskRow], tuple[int, int]]:
        def key(row: GraphTaskRow) -> tuple[int, int]:
            match self._order:
                case "time":
                    took = -1 if row.end_ns is None else row.end_ns - row.begin_ns
                    return -took, row.id
                case "nodes":
                    return -row.nodes, row.id
                case "mark":
                    mark = self._mark(file, row)
                    return len(_WORST) if mark is None else _WORST[mark], row.id
                case _:
                    return row.id, 0

        return key

    def _fits(self, file: int, row: GraphTaskRow, words: Sequence[str]) -> bool:
        call, end = _call(row), self._end(file, row)
        text = f"#{row.id} {call} {end} {row.nodes} nodes".lower()
        if self._mark(file, row) is PassMark.NON_FINITE:
            text += " non-finite nan inf"
        return all(word in text for word in words)

    def _mark(self, file: int, row: GraphTaskRow) -> PassMark | None:
        of_end = PassMark.WENT_BACK if row.error == GONE_BACK else _ENDS.get(row.status)
        return self._marks[file].get(row.id, of_end)

    def _end(self, file: int, row: GraphTaskRow) -> str:
        """How it ended, in words."""
        mark = self._mark(file, row)
        end = "finished" if mark is None else str(mark)
        if mark is PassMark.NOT_MEASURED:
            end = f"finished, {mark}"
        if row.status is GraphTaskStatus.FAILED and mark is not PassMark.WENT_BACK:
            end = f"failed: {row.error}"
        if row.withdrawn_seq is not None:
            end += ", inference withdrawn"
        return f"{end}, inside #{row.parent}" if row.parent >= 0 else end

    def _draw(self, file: int, row: GraphTaskRow | None) -> Text:
        """A graph task on one line, in columns."""
        if row is None:
            return Text(clean(self._paths[file].name))
        rows = self._tasks[file]
        mark = self._mark(file, row)
        number = max(4, len(f"{rows[-1].id:,}"))
        time = duration(row.end_ns - row.begin_ns) if row.end_ns is not None else ""
        look = "" if mark in {None, PassMark.NOT_MEASURED} else "bold"
        return Text.assemble(
            (f" {'✓' if mark is None else _GLYPHS.get(mark, '✗')} ", look),
            f"{right(f'{row.id:,}', number)}  {left(_call(row), 9)}",
            f"{right(plural(row.nodes, 'node'), 15)}  {right(time, 8)}  ",
            (self._end(file, row), look),
        )

    def on_task_list_opened(self, message: TaskList.Opened) -> None:
        """Open it."""
        self.dismiss(message.key)

    def on_input_changed(self) -> None:
        """List what fits."""
        self._list()

    def on_input_submitted(self) -> None:
        """Choose among what fits."""
        self.query_one(TaskList).focus()

    def action_search(self) -> None:
        """Ask which are wanted."""
        field = self.query_one(Input)
        field.display = True
        field.focus()

    def action_sort(self) -> None:
        """Sort by what comes next: number, time, nodes, mark."""
        self._order = _ORDERS[(_ORDERS.index(self._order) + 1) % len(_ORDERS)]
        self._current = self.query_one(TaskList).key or self._current
        self._list()
        if self._order != _ORDERS[0]:
            self.query_one(TaskList).action_move_to(0)

    def action_back(self) -> None:
        """Leave the search, or else the choice."""
        field = self.query_one(Input)
        if field.display:
            field.value = ""
            field.display = False
            self.query_one(TaskList).focus()
        else:
            self.dismiss(None)


def _call(row: GraphTaskRow) -> str:
    return "backward" if row.accumulate_grad else "grad"
