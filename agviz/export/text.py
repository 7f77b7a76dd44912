"""Text for pictures: short, the same everywhere, and harmless to DOT, HTML-like labels and XML."""

from __future__ import annotations

import html

from agviz.words.safe import REPLACEMENT, clean

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


def rounded(number: float) -> str:
    """``1,200``, ``3.4e+07``: two digits that count."""
    return f"{float(f'{number:.2g}'):,.0f}" if number < 1e6 else f"{number:.2g}"
