"""Searching: ``/`` and the command line, and what is done with what was typed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from agviz.tui import commands
from agviz.tui.board import Board
from agviz.tui.prompt import SEARCH, Prompt
from agviz.tui.title import Status
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agviz.tui.columns import OutlineColumns
    from agviz.tui.model import View
    from agviz.tui.panels.panel import Panel
    from agviz.tui.reader_thread import ReaderThread
    from agviz.tui.seeking import Sought


class Searching(Board):
    """The prompt at the bottom, and walking through what was found."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority, what is typed right behind it goes to the prompt, however fast.
        Binding("slash", "ask('/')", "Search", priority=True, id="search.ask"),
        Binding("full_stop", "match(1)", "Next match", show=False, id="search.next"),
        Binding("comma", "match(-1)", "Previous match", show=False, id="search.previous"),
        Binding("escape", "stop_search", "Stop searching", show=False, id="search.stop"),
        Binding("colon", "ask(':')", "Command line", show=False, priority=True, id="command.ask"),
    ]

    def __init__(self, paths: Sequence[Path], reader: ReaderThread) -> None:
        super().__init__(paths, reader)
        self._matches: list[int] = []
        """By row."""
        self._matched = -1
        """Version of the columns in which they were found."""
        self._wanted = ""
        self._prompted_from: Panel | None = None

    def forget_matches(self) -> None:
        """What is shown now is another graph task."""
        self._matched = -1

    def action_ask(self, kind: str) -> None:
        """Open the prompt for a search or a command."""
        if self.view is not None:
            self.ask(kind)

    def ask(self, kind: str, begin: str = "") -> None:
        """Open the prompt for a search or a command that begins so."""
        self._prompted_from = self.focused_panel
        self.query_one(Status).add_class("-hidden")
        self.query_one(Prompt).ask(kind, begin)

    def action_stop_search(self) -> None:
        """Leave off searching the other graph tasks."""
        self.reader.stop_search()

    def action_match(self, by: int) -> None:
        """Look at the next or previous node that was searched for."""
        if self.view is None:
            return
        if self._wanted:
            self._match(by, self.view)
        else:
            self.notify("Search first: press / and type a part of a name.")

    def on_sought(self, message: Sought) -> None:
        """Say how the search in other graph tasks goes; where it was in vain, go around here."""
        if self.view is not None:
            self.view = replace(self.view, busy=message.progress)
            if message.is_vain:
                self._match(message.by, self.view, is_around=True)

    def _match(self, by: int, view: View, *, is_around: bool = False) -> None:
        """The next match behind the selected node, the previous one, or (0) one here or behind.

        Beyond the last one, those of other graph tasks come first; ``is_around``: there are none.
        """
        columns = view.recording.columns
        if self._matched != columns.version:
            self._matched = columns.version
            self._matches = columns.find(self._wanted)
        matches = self._matches
        here = -1 if view.selected is None else columns.row_of(view.selected)
        find = bisect_right if by > 0 else bisect_left
        rows = partial(_row_of, columns)
        index = find(matches, -1 if here is None else here, key=rows) - (by < 0)
        is_beyond = bool(by) and not 0 <= index < len(matches)
        if view.recording.siblings > 1 and (is_beyond or not matches) and not is_around:
            self.reader.search(self._wanted, by or 1)
            return
        if not matches:
            where = f" in any of {view.recording.siblings:,} passes" if is_around else ""
            self.notify(f"No node matches “{self._wanted}”{where}.", markup=False)
            return
        node = matches[index % len(matches)]
        number = f"{index % len(matches) + 1:,} of {plural(len(matches), 'match', 'matches')}"
        if view.recording.siblings > 1:
            number += " in this pass"
        self.look_at(node, replace(view, found=(node, number)))
        execution = columns.execution_of(node)
        if execution is not None:
            self.together.wait()
            self.reader.locate(execution.seq)

    def on_prompt_left(self) -> None:
        """Go back to the panel from which the prompt was opened."""
        self.query_one(Status).remove_class("-hidden")
        if self._prompted_from is not None:
            self.set_focus(self._prompted_from)

    def on_prompt_answered(self, message: Prompt.Answered) -> None:
        """Search, or carry out a command."""
        if message.kind == SEARCH:
            self._wanted, self._matched = message.text, -1
            self.action_match(0)
            return
        try:
            name, argument = commands.parse(message.text, self.all_commands())
            getattr(self, f"command_{name}")(argument)
        except commands.CommandError as error:
            self.notify(str(error), severity="warning", markup=False)


def _row_of(columns: OutlineColumns, node: int) -> int:
    row = columns.row_of(node)
    return len(columns) if row is None else row
