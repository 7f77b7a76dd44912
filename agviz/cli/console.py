"""What the verbs share in writing to the terminal."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def stdout_console() -> Console:
    """A console on stdout that writes what the terminal's encoding lacks as an escape."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(highlight=False, soft_wrap=False)


def styled(text: str, style: str = "") -> Text:
    """``text`` as it is: nothing in it is markup."""
    from rich.text import Text

    return Text(text, style=style)


def bare_table() -> Table:
    """A table without lines and headings."""
    from rich.table import Table

    return Table(box=None, show_header=False, pad_edge=False)


def headed_table(title: str = "") -> Table:
    """A table with a line below its headings, still without columns."""
    from rich import box
    from rich.table import Table

    return Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )


def columns_table(title: str, *columns: tuple[str, bool]) -> Table:
    """A table of ``columns``: their headings, and whether they hold numbers."""
    table = headed_table(title)
    for heading, is_number in columns:
        if is_number:
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold")
    return table


def write(text: str, console: Console, *, indent: int = 2, style: str = "") -> None:
    """Print words, wrapped to the terminal and indented; nothing where there are none."""
    for line in textwrap.wrap(text, max(20, console.width - indent), break_on_hyphens=False):
        console.print(styled(" " * indent + line, style))
