"""What the verbs share in writing to the terminal."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def stdout_console() -> Console:
    """A console on stdout that writes what the terminal's encoding lacks as an escape."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(highlight=False, soft_wrap=False)


def columns_table(title: str, *columns: tuple[str, bool]) -> Table:
    """A table of ``columns``: their headings, and whether they hold numbers."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for heading, is_number in columns:
        if is_number:
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold")
    return table


def write(text: str, console: Console, *, indent: int = 2, style: str = "") -> None:
    """Print words, wrapped to the terminal and indented; nothing where there are none."""
    from rich.text import Text

    for line in textwrap.wrap(text, max(20, console.width - indent), break_on_hyphens=False):
        console.print(Text(" " * indent + line, style=style))
