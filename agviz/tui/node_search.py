"""Searching nodes by name, and walking through what was found."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agviz.words.units import plural

if TYPE_CHECKING:
    from agviz.tui.board import Board
    from agviz.tui.columns import OutlineColumns
    from agviz.tui.seeking import Sought


class NodeSearch:
    """What was searched for, and its matches.

    Args:
        board: whose nodes are searched.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._matches: list[int] = []
        """By row."""
        self._matched = -1
        """Version of the columns in which they were found."""
        self._wanted = ""

    def forget_matches(self) -> None:
        """What is shown now is another graph task."""
        self._matched = -1

    def search(self, wanted: str) -> None:
        """Look at the first node whose name, module or parameter holds a text."""
        self._wanted, self._matched = wanted, -1
        self._match(0)

    def go(self, by: int) -> None:
        """Look at the next or previous node that was searched for."""
        if self._wanted:
            self._match(by)
        else:
            self._board.notify("Search first: press / and type a part of a name.")

    def show_progress(self, message: Sought) -> None:
        """Say how the search in other graph tasks goes; where it was in vain, go around here."""
        self._board.show(replace(self._board.shown, busy=message.progress))
        if message.is_vain:
            self._match(message.by, is_around=True)

    def _match(self, by: int, *, is_around: bool = False) -> None:
        """The next match behind the selected node, the previous one, or (0) one here or behind.

        Beyond the last one, those of other graph tasks come first; ``is_around``: there are none.
        """
        view = self._board.shown
        columns, siblings = view.recording.columns, view.recording.siblings
        if self._matched != columns.version:
            self._matched = columns.version
            self._matches = columns.find(self._wanted)
        matches = self._matches
        here = -1 if view.selected is None else columns.row_of(view.selected)
        find = bisect_right if by > 0 else bisect_left
        rows = partial(_row_of, columns)
        index = find(matches, -1 if here is None else here, key=rows) - (by < 0)
        is_beyond = bool(by) and not 0 <= index < len(matches)
        if siblings > 1 and (is_beyond or not matches) and not is_around:
            self._board.reader.search(self._wanted, by or 1)
            return
        if not matches:
            where = f" in any of {siblings:,} passes" if is_around else ""
            self._board.notify(f"No node matches “{self._wanted}”{where}.")
            return
        node = matches[index % len(matches)]
        number = f"{index % len(matches) + 1:,} of {plural(len(matches), 'match', 'matches')}"
        if siblings > 1:
            number += " in this pass"
        self._board.look_at(node, replace(view, found=(node, number)))
        execution = columns.execution_of(node)
        if execution is not None:
            self._board.together.wait()
            self._board.reader.locate(execution.seq)


def _row_of(columns: OutlineColumns, node: int) -> int:
    row = columns.row_of(node)
    return len(columns) if row is None else row
