"""Text for pictures: short, the same everywhere, and harmless to DOT, HTML-like labels and XML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from agviz.traces.text import REPLACEMENT, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.traces.rows import NonFinite

LONGEST_NAME = 48
TIMES = "\N{MULTIPLICATION SIGN}"
DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def plain(text: str) -> str:
    """``text`` on one line, without anything that XML can't hold."""
    text = clean(text.encode("utf-8", "replace").decode("utf-8"))
    return text.replace("\ufffe", REPLACEMENT).replace("\uffff", REPLACEMENT)


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    """``text``, its middle replaced by an ellipsis where it is too long for a picture."""
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[len(text) - end :]}"


def in_label(text: str) -> str:
    """``text`` as content of an HTML-like label, or a value of one of its attributes.

    Graphviz replaces escapes (a backslash and a letter) in these, too.
    """
    return html.escape(plain(text)).replace("\\", "\\\\")


def in_attribute(text: str) -> str:
    """``text`` as part of an ordinary attribute, where Graphviz knows escapes and entities."""
    return plain(text).replace("&", "&amp;").replace("\\", "\\\\")


def duration(ns: int) -> str:
    """``35 µs``: three significant digits at most, in a unit that suits."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)):
        if ns >= size:
            value = ns / size
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return (
                f"{value:.{digits}f}".rstrip("0").rstrip(".") + f" {unit}"
                if digits
                else (f"{value:.0f} {unit}")
            )
    return f"{ns} ns"


def rounded(number: float) -> str:
    """``1,200``, ``3.4e+07``: two digits that count."""
    return f"{float(f'{number:.2g}'):,.0f}" if number < 1e6 else f"{number:.2g}"


def size(nbytes: int) -> str:
    """``12.3 kB``: three significant digits at most, in a unit that suits."""
    for unit, many in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= many:
            value = nbytes / many
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{nbytes} bytes"


def shape(sizes: Sequence[int] | None) -> str:
    """``[64, 128]``, as torch writes it; empty where it was not recorded."""
    return "" if sizes is None else str(list(sizes))


def nonfinite(found: NonFinite) -> str:
    """``3 NaN, 1 +Inf``."""
    counts = ((found.nan, "NaN"), (found.posinf, "+Inf"), (found.neginf, f"{MINUS}Inf"))
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)
