"""Where Python is typed: as many lines as it takes, as at Python's own prompt."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from textual.message import Message
from textual.widgets import TextArea

from agviz.debugger.python_input import INDENT, indent_after, is_whole

if TYPE_CHECKING:
    from textual import events

_MOST_SHOWN: Final = 10
"""Lines; more are scrolled."""


class PythonField(TextArea):
    """Enter runs what is whole, and else begins another line; up and down walk through history."""

    @dataclass
    class Entered(Message):
        """What was typed is whole."""

        text: str

    @dataclass
    class CompletionWanted(Message):
        """The user has begun a name, and wants to know how it may go on."""

        text: str
        """What is before the cursor, in its line."""

    @dataclass
    class EarlierWanted(Message):
        """The user goes up from the first line, or (-1) down from the last."""

        by: int

    @dataclass
    class LineCountChanged(Message):
        """There are more lines, or less."""

        lines: int

    def __init__(self, placeholder: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(
            id=id,
            compact=True,
            soft_wrap=False,
            highlight_cursor_line=False,
            placeholder=placeholder,
        )

    @property
    def before_cursor(self) -> str:
        """What is before the cursor, in its line."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def put(self, text: str) -> None:
        """Show a text, with the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def extend(self, names: tuple[str, ...]) -> bool:
        """Write on what was begun before the cursor, as far as all ``names`` agree.

        Returns:
            Whether there was anything to write.
        """
        before = self.before_cursor
        shared = os.path.commonprefix(names)  # noqa: RUF071 - characters are what is wanted
        begun = next((n for n in range(len(shared), 0, -1) if before.endswith(shared[:n])), 0)
        if begun < len(shared):
            self.insert(shared[begun:])
        return begun < len(shared)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._enter()
        elif event.key == "tab":
            event.stop()
            event.prevent_default()
            if self.before_cursor.strip():
                self.post_message(self.CompletionWanted(self.before_cursor))
            else:
                self._indent()
        elif event.key == "backspace" and self._is_behind_blanks:
            event.stop()
            event.prevent_default()
            row, column = self.cursor_location
            self.delete((row, (column - 1) // len(INDENT) * len(INDENT)), (row, column))

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(len(INDENT))
        self.replace(text, *self.selection, maintain_selection_offset=False)

    def action_cursor_up(self, select: bool = False) -> None:
        """One line up, or to what was entered before."""
        if self.cursor_location[0] or select:
            super().action_cursor_up(select)
        else:
            self.post_message(self.EarlierWanted(1))

    def action_cursor_down(self, select: bool = False) -> None:
        """One line down, or to what was entered after."""
        if self.cursor_location[0] < self.document.line_count - 1 or select:
            super().action_cursor_down(select)
        else:
            self.post_message(self.EarlierWanted(-1))

    def action_copy(self) -> None:
        """Copy what is selected; else begin anew, as ctrl+c does at Python's own prompt."""
        if self.selected_text:
            super().action_copy()
        else:
            self.put("")

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Take as many lines as there are."""
        event.stop()
        lines = min(self.document.line_count, _MOST_SHOWN)
        if self.styles.height is None or self.styles.height.value != lines:
            self.styles.height = lines
            self.post_message(self.LineCountChanged(lines))

    @property
    def _is_behind_blanks(self) -> bool:
        before = self.before_cursor
        return self.selection.is_empty and bool(before) and before.isspace()

    def _indent(self) -> None:
        column = self.cursor_location[1]
        self.insert(" " * (len(INDENT) - column % len(INDENT)))

    def _enter(self) -> None:
        row = self.cursor_location[0]
        if row == self.document.line_count - 1 and is_whole(self.text):
            text = self.text
            self.put("")
            self.post_message(self.Entered(text))
        else:
            self.insert("\n" + indent_after(self.before_cursor))
            self.scroll_cursor_visible()
