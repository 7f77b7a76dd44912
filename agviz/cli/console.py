"""What the verbs share in writing to the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def stdout_console() -> Console:
    """A console on stdout that writes what the terminal's encoding lacks as an escape."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console(highlight=False, soft_wrap=False)
