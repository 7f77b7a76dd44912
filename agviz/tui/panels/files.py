"""The files that were opened, to choose one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.tui.panels.line_list import LineList
from agviz.tui.text import Line, Span, left
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence


class FileRow(NamedTuple):
    """A file."""

    name: str
    passes: int
    """Calls of backward and grad that no node of another made."""
    wrong: int
    """How many of these are not good."""


class FileList(LineList):
    """One line for each file; the passes of the one under the cursor are listed below."""

    HEADING = "Files"
    DRAWS = ()
    HELP = (
        "The files that were opened: ! holds a backward pass that is not good. The passes of the"
        " one under the cursor are below; tab leads there and back."
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "app.focus_next", "Passes", id="files.open"),
    ]

    class FileChosen(Message):
        """The cursor is on another file."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._files: Sequence[FileRow] = ()

    def show_files(self, rows: Sequence[FileRow]) -> None:
        """List them."""
        self._files = rows
        self.line_count = len(rows)
        self.redraw()

    def line(self, index: int, width: int) -> Line:
        """A file."""
        row = self._files[index]
        passes = plural(row.passes, "backward pass", "backward passes")
        glyph = Span("!", "nonfinite") if row.wrong else Span(" ")
        said = f"  {passes}" + (f" · {row.wrong:,} not good" if row.wrong else "")
        room = max(len(row.name) for row in self._files)
        name = left(clean(row.name), max(1, min(room, width - len(said) - 3)))
        return [Span(" "), glyph, Span(f" {name}", "name"), Span(said, "number")]

    def cursor_moved(self) -> None:
        """Have its passes listed."""
        self.post_message(self.FileChosen())
