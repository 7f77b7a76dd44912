"""Plain text for the terminal: looks and aligned columns.

Nothing from a trace is ever interpreted as markup: a line is a list of spans, each a text and the
name of a look, which a panel turns into a style of the current theme.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER_AT_END = re.compile(r"(?<![A-Za-z_\d])-?\d[\d,.]*(?:e[-+]?\d*)?$")
"""Digits of a name, as in ``AddmmBackward0``, are no number."""

PLAYHEAD = "▶"


class Span(NamedTuple):
    """A stretch of a line in one look."""

    text: str
    look: str = ""
    """Component class without its prefix, e.g. ``done``; empty: the panel's own style."""


Line = list[Span]


def left(text: str, width: int) -> str:
    """``text`` in exactly ``width`` cells, the end replaced by ``…`` where it is too long.

    A number is there as a whole, or not at all.
    """
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(beginning(text, width - 1) + "…", width)


def beginning(text: str, width: int) -> str:
    """What of a longer ``text`` has room in ``width`` cells.

    No number is at its end, as nobody could know whether that is all of it.
    """
    return _NUMBER_AT_END.sub("", set_cell_size(text, width))


def right(text: str, width: int) -> str:
    """``text`` at the right of ``width`` cells."""
    missing = width - cell_len(text)
    return " " * missing + text if missing >= 0 else left(text, width)


def tail(text: str, width: int) -> str:
    """``text`` in exactly ``width`` cells, its beginning replaced by ``…`` where it is too long.

    The end of a module path says more than its beginning.
    """
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    cut = ""
    while text and cell_len(text) > width - 1:
        cut, text = text[0], text[1:]
    if cut.isdigit():
        text = text.lstrip("0123456789")
    return set_cell_size("…" + text, width)


def wrap(text: str, width: int) -> list[str]:
    """``text`` in pieces of at most ``width`` cells, whole words each where they have room.

    Line ends in it are kept.
    """
    width = max(1, width)
    return [
        piece for line in text.expandtabs(4).splitlines() for piece in _wrapped(line, width)
    ] or [""]


def _wrapped(line: str, width: int) -> list[str]:
    pieces: list[str] = []
    first, *words = line.split(" ")
    *pieces, last = chop_cells(first, width) or [""]
    for word in words:
        if cell_len(last) + 1 + cell_len(word) <= width:
            last += f" {word}"
        else:
            pieces.append(last)
            *whole, last = chop_cells(word, width) or [""]
            pieces += whole
    return [*pieces, last]


def one_line(text: str) -> str:
    """``text`` with every run of blanks and line ends made one blank."""
    return " ".join(text.split())


def plain(line: Sequence[Span]) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)
