"""The file that keeps a project's breakpoints: ``.agviz/breakpoints.json``.

Somebody else may have written it. What is no list of breakpoints is refused in one sentence and
left as it is, and nothing is saved over it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agviz.debugger.breakpoints import Breakpoint
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE: Final = Path(".agviz") / "breakpoints.json"
"""In the folder of the project."""
VERSION: Final = 1
MOST: Final = 1_000
"""Breakpoints in a file."""
_MOST_BYTES: Final = 1_000_000


class BreakpointFile:
    """The breakpoints of one project.

    Args:
        folder: of the project.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / PLACE
        self._is_foreign = False

    def load(self) -> list[Breakpoint]:
        """What was saved; empty where there is no file.

        Raises:
            agviz.errors.AgvizError: the file is not ours; it is left untouched from now on.
        """
        try:
            text = _read(self.path)
            if text is None:
                return []
            return _breakpoints(text)
        except AgvizError as error:
            self._is_foreign = True
            raise AgvizError(f"the breakpoints in {self.path} can't be read: {error}") from None

    def save(self, breakpoints: Sequence[Breakpoint]) -> None:
        """Keep these, without temporary ones and counts of hits.

        Raises:
            agviz.errors.AgvizError: they can't be written, or the file there is not ours.
        """
        if self._is_foreign:
            raise AgvizError(
                f"{self.path} could not be read and is left as it is; these breakpoints are"
                " forgotten at the end"
            )
        kept = [each.changed(hits=0, number=0) for each in breakpoints if not each.temporary]
        if not kept and not self.path.exists():
            return
        document = {"version": VERSION, "breakpoints": [each.to_json() for each in kept]}
        try:
            self.path.parent.mkdir(exist_ok=True)
            _write(self.path, json.dumps(document, indent=2) + "\n")
        except OSError as error:
            raise AgvizError(
                f"the breakpoints can't be saved in {self.path}: {error.strerror}"
            ) from None


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AgvizError(str(error.strerror)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise AgvizError("it is no file")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise AgvizError("it is too large")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise AgvizError("it is no text") from None


def _breakpoints(text: str) -> list[Breakpoint]:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise AgvizError("it is no JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("breakpoints"), list):
        raise AgvizError("it holds no breakpoints")
    if document.get("version") != VERSION:
        raise AgvizError("it is from another version of agviz")
    told = document["breakpoints"]
    if len(told) > MOST:
        raise AgvizError(f"it holds more than {MOST:,}")
    return [Breakpoint.from_json(each) for each in told]


def _write(path: Path, text: str) -> None:
    """Replace the file in one go."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
