"""Files as they are named to the user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def shown(path: Path | str) -> str:
    """A file as it is typed where pytest runs."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # on another drive
        return str(path)
    return str(path) if relative.startswith("..") else relative
