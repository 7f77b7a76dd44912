"""What the verbs share in writing to the terminal."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def stdout_console() -> Console:
    """A console on stdout that writes what the terminal's encoding lacks as an escape."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(highlight=False, soft_wrap=False)


def write(text: str, console: Console, *, indent: int = 2, style: str = "") -> None:
    """Print words, wrapped to the terminal and indented; nothing where there are none."""
    from rich.text import Text

    for line in textwrap.wrap(text, max(20, console.width - indent), break_on_hyphens=False):
        console.print(Text(" " * indent + line, style=style))
