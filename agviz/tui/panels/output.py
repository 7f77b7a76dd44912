"""What a debugged program prints, and what was answered at a stop."""

from __future__ import annotations

import codecs
from collections import deque
from typing import Final

from agviz.tui.panels.line_list import LineList
from agviz.tui.text import Line, Span
from agviz.words.safe import clean
from agviz.words.units import plural

_MOST_LINES: Final = 10_000
_LONGEST: Final = 2_000
_TAB: Final = "    "

STDOUT: Final = "name"
STDERR: Final = "place"
ANSWER: Final = "heading"
INPUT: Final = "muted"


class Output(LineList):
    """One line of text per line; control characters and escape sequences are made harmless."""

    HEADING = "Output"
    DRAWS = ()
    EMPTY = "Nothing was printed yet."
    HELP = (
        "What the debugged program printed to stdout and stderr, the last 10,000 lines. What is"
        " asked at a stop with ! or with a command is answered here, too."
    )

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._lines: deque[tuple[str, str]] = deque(maxlen=_MOST_LINES)
        """Look and text."""
        self._open: dict[str, str] = {}
        """Lines that have no end yet, by look."""
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def add_bytes(self, found: bytes, look: str) -> None:
        """Show what the program has printed."""
        decoder = self._decoders.get(look)
        if decoder is None:
            decoder = self._decoders[look] = codecs.getincrementaldecoder("utf-8")("replace")
        self.add(decoder.decode(found), look)

    def add(self, text: str, look: str) -> None:
        """Show a text, which need not end with a line."""
        at_end = self.cursor >= self.line_count - 1
        *whole, rest = (self._open.pop(look, "") + text).replace("\r\n", "\n").split("\n")
        for line in whole[-_MOST_LINES:]:
            self._lines.append((look, _harmless(line)))
        if rest:
            self._open[look] = rest[-_LONGEST:]
        self.line_count = len(self._lines) + len(self._open)
        if at_end:
            self.put_cursor(self.line_count - 1)
        self.subtitle(plural(self.line_count, "line") if self.line_count else "")
        self.redraw()

    @property
    def last_lines(self) -> list[str]:
        """The last few, for where there is no room for a panel."""
        return [self._at(n)[1] for n in range(max(self.line_count - 8, 0), self.line_count)]

    def line(self, index: int, width: int) -> Line:
        """A line as it was printed."""
        look, text = self._at(index)
        mark = {STDERR: "!", ANSWER: "=", INPUT: ">"}.get(look, " ")
        return [Span(f"{mark} ", "muted"), Span(text[: max(width, 0)], look)]

    def copy_text(self) -> str:
        """The line under the cursor, as it is."""
        return self._at(self.cursor)[1] if self.line_count else ""

    def _at(self, index: int) -> tuple[str, str]:
        """Look and text of a line; those without an end come last."""
        if index < len(self._lines):
            return self._lines[index]
        look = list(self._open)[index - len(self._lines)]
        return look, _harmless(self._open[look])


def _harmless(line: str) -> str:
    """A line as a terminal would leave it that only knows carriage returns."""
    return clean(line.rpartition("\r")[2].replace("\t", _TAB)[:_LONGEST])
