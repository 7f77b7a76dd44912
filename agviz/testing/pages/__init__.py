"""Pages about failing tests: each one file that asks no network and runs no script."""

from __future__ import annotations

import html
import string
from importlib import resources

from agviz.export import text
from agviz.export.css import following


def page(title: str, header: str, sections: str, footer: str = "") -> str:
    """A whole page.

    Args:
        title: text.
        header: HTML of the header.
        sections: HTML of the main part.
        footer: HTML below it; empty: none.
    """
    files = resources.files(__name__)
    return string.Template(files.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escaped(title),
        header=header,
        sections=sections,
        footer=footer and f"<footer>\n{footer}\n</footer>",
        colours=following(),
        style=files.joinpath("style.css").read_text(encoding="utf-8"),
    )


def with_glyph(glyph: str, said: str) -> str:
    """Text of one line as HTML, behind the glyph of its outcome, if there is one."""
    return (f'<span class="found">{glyph}</span> ' if glyph else "") + escaped(said)


def escaped(said: str) -> str:
    """Text of one line for HTML."""
    return html.escape(text.plain(said))
