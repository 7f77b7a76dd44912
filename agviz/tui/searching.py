"""Searching: ``/`` and the command line, and what is done with what was typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from agviz.tui import commands
from agviz.tui.board import Board
from agviz.tui.prompt import SEARCH, Prompt
from agviz.tui.text import count
from agviz.tui.title import Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agviz.tui.panels.panel import Panel
    from agviz.tui.reader_thread import ReaderThread


class Searching(Board):
    """The prompt at the bottom, and walking through what was found."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority, what is typed right behind it goes to the prompt, however fast.
        Binding("slash", "ask('/')", "Search", priority=True, id="search.ask"),
        Binding("full_stop", "match(1)", "Next match", show=False, id="search.next"),
        Binding("comma", "match(-1)", "Previous match", show=False, id="search.previous"),
        Binding("colon", "ask(':')", "Command line", show=False, priority=True, id="command.ask"),
    ]

    def __init__(self, paths: Sequence[Path], reader: ReaderThread) -> None:
        super().__init__(paths, reader)
        self._matches: list[int] = []
        self._wanted = ""
        self._prompted_from: Panel | None = None

    def forget_matches(self) -> None:
        """What is shown now is another graph task."""
        self._matches = []

    def action_ask(self, kind: str) -> None:
        """Open the prompt for a search or a command."""
        if self.view is not None:
            self.ask(kind)

    def ask(self, kind: str, begin: str = "") -> None:
        """Open the prompt for a search or a command that begins so."""
        self._prompted_from = self.focused_panel
        self.query_one(Status).add_class("-hidden")
        self.query_one(Prompt).ask(kind, begin)

    def action_match(self, by: int) -> None:
        """Look at the next or previous node that was searched for."""
        view = self.view
        if view is None:
            return
        if not self._wanted:
            self.notify("Search first: press / and type a part of a name.")
            return
        if not self._matches:
            self._matches = view.recording.columns.find(self._wanted)
        if not self._matches:
            self.notify(f"No node matches “{self._wanted}”.", markup=False)
            return
        if view.selected in self._matches:
            index = (self._matches.index(view.selected) + by) % len(self._matches)
        else:
            index = 0 if by > 0 else -1
        node = self._matches[index]
        self.look_at(node, view)
        execution = view.recording.columns.execution_of(node)
        if execution is not None:
            self.reader.locate(execution.seq)
        position = self._matches.index(node) + 1
        self.notify(f"{position} of {count(len(self._matches), 'match', 'matches')}", timeout=2)

    def on_prompt_left(self) -> None:
        """Go back to the panel from which the prompt was opened."""
        self.query_one(Status).remove_class("-hidden")
        if self._prompted_from is not None:
            self.set_focus(self._prompted_from)

    def on_prompt_answered(self, message: Prompt.Answered) -> None:
        """Search, or carry out a command."""
        if message.kind == SEARCH:
            self._wanted, self._matches = message.text, []
            self.action_match(1)
            return
        try:
            name, argument = commands.parse(message.text, self.all_commands())
            getattr(self, f"command_{name}")(argument)
        except commands.CommandError as error:
            self.notify(str(error), severity="warning", markup=False)
