"""How a file is called: as its user gave it, wherever the program goes meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_given: Final[dict[Path, Path]] = {}
"""What was relative, by what it became."""


def absolute(path: Path) -> Path:
    """The file from the root on, which stays the same where the program goes to another folder."""
    try:
        found = path.absolute()
    except OSError:  # the folder was removed
        return path
    if found != path:
        _given[found] = path
    return found


def shown(path: Path) -> Path:
    """The file as it was given to :func:`absolute`, or as it is."""
    return _given.get(path, path)
