"""The three outcomes of looking at a recording, and how each is shown."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """The three things that can be said."""

    FOUND = "found"
    NOTHING_UNUSUAL = "nothing unusual"
    CANT_TELL = "can't tell"

    @property
    def glyph(self) -> str:
        """The mark in front of a sentence of this outcome."""
        return _GLYPHS[self]

    @property
    def style(self) -> str:
        """The colour of the glyph, for Rich; it never says more than the glyph."""
        return _STYLES[self]


_GLYPHS: Final = {Outcome.FOUND: "✗", Outcome.NOTHING_UNUSUAL: "✓", Outcome.CANT_TELL: "?"}
_STYLES: Final = {
    Outcome.FOUND: "bold red",
    Outcome.NOTHING_UNUSUAL: "green",
    Outcome.CANT_TELL: "yellow",
}

EXIT_CODES: Final = {Outcome.FOUND: 1, Outcome.NOTHING_UNUSUAL: 0, Outcome.CANT_TELL: 2}
"""Of a verb whose worst outcome it is."""
