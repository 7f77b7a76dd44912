"""Board: what every part of the session builds on. It holds the view and asks the reader thread.

A part (travel, search, ...) is a subclass with bindings, actions and commands; the session
inherits from all of them, and Textual joins their bindings. A command ``NAME`` is an entry of
``VERBS`` and a method ``command_NAME``; ``complete_NAME`` may complete its argument.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.reactive import Reactive, var
from textual.screen import Screen

from agviz.tui.model import Playhead, View
from agviz.tui.panels.panel import Panel
from agviz.tui.repaint import Repaint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from textual.widget import Widget

    from agviz.analysis.verdict import PassMark
    from agviz.traces.rows import GraphTaskRow
    from agviz.tui.commands import Usage
    from agviz.tui.model import LoadedPass
    from agviz.tui.reader_thread import Move, ReaderThread


class Board(Screen[None]):
    """The view, and what moves it.

    Args:
        paths: the files that were opened.
        reader: the thread that reads them; it posts its answers to this screen.
    """

    AUTO_FOCUS = ""

    VERBS: ClassVar[Mapping[str, Usage]] = {}
    """What this part adds to the commands."""

    view: var[View | None] = var(None)
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """Other than in a screen of Textual's, only what loses or gets the focus is painted."""

    def __init__(self, paths: Sequence[Path], reader: ReaderThread) -> None:
        super().__init__()
        self.picks = False
        """Whether the user chooses a graph task first."""
        self.paths = paths
        self.reader = reader
        self.tasks: list[list[GraphTaskRow]] = []
        """The graph tasks of each file."""
        self.unusual: list[Mapping[int, PassMark]] = []
        """What is unusual about graph tasks of each file, by graph task."""
        self.together = Repaint(self)

    @classmethod
    def all_commands(cls) -> dict[str, Usage]:
        """The commands of all parts."""
        return {
            name: usage
            for part in reversed(cls.__mro__)
            for name, usage in vars(part).get("VERBS", {}).items()
        }

    def complete(self, line: str) -> list[str]:
        """The command lines that begin with what was typed."""
        name, blank, argument = line.partition(" ")
        known = self.all_commands()
        if not blank:
            return [each for each in known if each.startswith(name)]
        completing = getattr(self, f"complete_{name}", None)
        if completing is None or name not in known:
            return []
        return [f"{name} {each}" for each in completing(argument)]

    def move(self, move: Move) -> None:
        """Ask for another moment."""
        if self.view is not None:
            if self.view.follows:
                self.view = replace(self.view, follows=False)
            self.reader.move(move)

    def go_elsewhere(self, graph_task: int, seq: int) -> None:
        """Go behind an event of another graph task."""
        if self.view is not None:
            if self.view.follows:
                self.view = replace(self.view, follows=False)
            self.reader.go(graph_task, seq)

    def run_to(self, node: int, recording: LoadedPass) -> None:
        """Go to the moment at which a node was taken up."""
        execution = recording.columns.execution_of(node)
        if execution is None:
            never = "never ran" if recording.is_over else "has not run yet"
            self.notify(f"This node {never}: there is no such moment.")
        else:
            self.move(partial(Playhead.to_seq, seq=execution.seq))

    def look_at(self, node: int | None, view: View) -> None:
        """Show ``view`` with another node selected."""
        if node is None or node == view.selected:
            self.view = view
        else:
            self.together.wait()
            self.view = replace(view, selected=node)
            self.reader.story(node)

    def only(self, thread: int | None) -> None:
        """Go by one thread's nodes only; None: by all."""
        if self.view is not None:
            self.view = replace(self.view, thread=thread)

    @property
    def focused_panel(self) -> Panel | None:
        """The panel that has the focus."""
        return self.focused if isinstance(self.focused, Panel) else None
