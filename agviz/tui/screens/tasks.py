"""The choice among the graph tasks of all opened files."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from agviz.traces.rows import GraphTaskStatus
from agviz.traces.text import clean
from agviz.tui.model import Key
from agviz.tui.text import count, duration, left, right

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.app import ComposeResult

    from agviz.traces.rows import GraphTaskRow

_GLYPHS = {
    GraphTaskStatus.FINISHED: "✓",
    GraphTaskStatus.FAILED: "✗",
    GraphTaskStatus.RUNNING: "●",
    GraphTaskStatus.CUT: "…",
}


class TaskPicker(ModalScreen[Key | None]):
    """Opens over the session; its result is the chosen graph task."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,t", "dismiss", "Cancel", id="tasks.cancel"),
        Binding("j", "move(1)", "Down", show=False, id="tasks.down"),
        Binding("k", "move(-1)", "Up", show=False, id="tasks.up"),
        Binding("g", "move_to('first')", "First", show=False, id="tasks.first"),
        Binding("G", "move_to('last')", "Last", show=False, id="tasks.last"),
    ]

    def __init__(
        self, paths: Sequence[Path], tasks: Sequence[Sequence[GraphTaskRow]], current: Key | None
    ) -> None:
        super().__init__()
        self._paths = paths
        self._tasks = tasks
        self._current = current

    def compose(self) -> ComposeResult:
        """One line per graph task, below its file's name."""
        options: list[Option | None] = []
        for file, rows in enumerate(self._tasks):
            if len(self._tasks) > 1:
                name = clean(self._paths[file].name)
                options.append(Option(Text(name, style="bold"), disabled=True))
            options += [Option(Text(describe_task(row)), id=f"{file}-{row.id}") for row in rows]
        box = OptionList(*options, id="tasks")
        box.border_title = "Graph tasks"
        box.border_subtitle = "enter opens, escape goes back"
        yield box

    def on_mount(self) -> None:
        """Start at the one that is open."""
        box = self.query_one(OptionList)
        if self._current is not None:
            box.highlighted = box.get_option_index(
                f"{self._current.file}-{self._current.graph_task}"
            )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open it."""
        file, _, graph_task = str(event.option_id).partition("-")
        self.dismiss(Key(int(file), int(graph_task)))

    def action_move(self, by: int) -> None:
        """Move the highlight."""
        box = self.query_one(OptionList)
        if by > 0:
            box.action_cursor_down()
        else:
            box.action_cursor_up()

    def action_move_to(self, end: str) -> None:
        """Move the highlight to an end of the list."""
        getattr(self.query_one(OptionList), f"action_{end}")()


def describe_task(row: GraphTaskRow) -> str:
    """A graph task on one line, in columns."""
    call = "backward" if row.accumulate_grad else "grad"
    inside = f" inside #{row.parent}" if row.parent >= 0 else ""
    time = duration(row.end_ns - row.begin_ns) if row.end_ns is not None else ""
    end = f"{row.error}" if row.status is GraphTaskStatus.FAILED else row.status.value
    return (
        f"{_GLYPHS[row.status]} {right(str(row.id), 4)}  {left(call, 9)}"
        f"{right(count(row.nodes, 'node'), 13)}  {right(time, 8)}  {end}{inside}"
    )
