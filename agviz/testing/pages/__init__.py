"""Pages about failing tests: each one file that asks no network and runs no script."""

from __future__ import annotations

import html
import string
from importlib import resources

from agviz.export import text
from agviz.export.css import following


def filled(name: str, **values: str) -> str:
    """A page of this folder.

    Args:
        name: of its file.
        values: HTML that goes into it; ``colours`` and ``style`` are given.
    """
    files = resources.files(__name__)
    style = files.joinpath("style.css").read_text(encoding="utf-8")
    page = string.Template(files.joinpath(name).read_text(encoding="utf-8"))
    return page.substitute(values, colours=following(), style=style)


def escaped(said: str) -> str:
    """Text of one line for HTML."""
    return html.escape(text.plain(said))
