"""Plain text for the terminal: looks, aligned columns, times, sizes and shapes.

Nothing from a trace is ever interpreted as markup: a line is a list of spans, each a text and the
name of a look, which a panel turns into a style of the current theme.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER_AT_END = re.compile(r"(?<![A-Za-z_\d])-?\d[\d,.]*(?:e[-+]?\d*)?$")
"""Digits of a name, as in ``AddmmBackward0``, are no number."""
_UNITS = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6))

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

    No number stands at its end, as nobody could tell whether that is all of it.
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


def duration(ns: int | None) -> str:
    """A time span, with three digits that matter: ``812 ns``, ``45.2 µs``, ``1.23 ms``."""
    if ns is None:
        return ""
    if ns < 1_000:
        return f"{ns} ns"
    for unit, factor in _UNITS[1:]:
        if ns < 999.5 * factor:
            return f"{_three_digits(ns / factor)} {unit}"
    return f"{_three_digits(ns / 1e9)} s"


def _three_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def ticks(begin: float, end: float, most: int) -> list[tuple[float, str]]:
    """At most ``most`` round moments between two, in ns, each with its label in one unit."""
    span = max(end - begin, 1.0)
    step = 10.0 ** math.floor(math.log10(span / max(1, most)))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if span / (step * factor) <= most)
    unit, factor = next(
        ((unit, factor) for unit, factor in _UNITS if step < 1_000 * factor), ("s", 1e9)
    )
    first = math.ceil(begin / step)
    return [
        (number * step, f"{number * step / factor:,.10g} {unit}")
        for number in range(first, math.floor(end / step) + 1)
    ]


def milliseconds(ns: int) -> str:
    """A moment, in ms to the µs, so that a column of them lines up: ``1,234.567``."""
    return f"{ns / 1e6:,.3f}"


def size(nbytes: int) -> str:
    """Bytes: ``512 B``, ``8.0 KiB``, ``1.5 MiB``."""
    if nbytes < 1024:
        return f"{nbytes} B"
    amount = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1023.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def shape(dimensions: tuple[int, ...] | None) -> str:
    """``[32, 64]``; ``[]`` for a scalar, ``undefined`` where no gradient was there."""
    if dimensions is None:
        return "undefined"
    return "[" + ", ".join(map(str, dimensions)) + "]"


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 node``, ``1,024 nodes``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def plain(line: Sequence[Span]) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)
