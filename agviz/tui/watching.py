"""Whether a trace file grows, and whether it is still the one that was opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.contents import is_alive

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.traces.reader import Trace

_GROWING: Final = 0.25
_FINISHED: Final = 1.0
_SHARE: Final = 20
"""Looking takes at most one part of so many of the time."""
_LONGEST: Final = 5.0
"""Seconds between two looks, however long one took: the process may have been suspended in it."""


class News(NamedTuple):
    """What a look at the file showed."""

    has_grown: bool
    trouble: str
    """What has become of the file: one sentence, or empty."""


class FileWatch:
    """Looks at a file when it is asked to."""

    def __init__(self, path: Path, trace: Trace) -> None:
        self._path = path
        self._trace = trace
        self._file = _identity(path)
        self._seen = trace.version
        self._was_growing = trace.is_growing
        self._pause = 0.0

    @property
    def interval(self) -> float:
        """Seconds until the next look."""
        return max(_GROWING if self._was_growing else _FINISHED, self._pause)

    def took(self, seconds: float) -> None:
        """Look less often where it takes long."""
        self._pause = min(_SHARE * seconds, _LONGEST)

    def look(self) -> News:
        """Look at it."""
        found = _identity(self._path)
        trouble = ""
        if found is None:
            trouble = "the file is gone; what was read of it is shown"
        elif found != self._file:
            trouble = "another file has taken its place; :reload opens it"
        version = self._trace.version
        has_grown = version != self._seen
        self._seen = version
        if self._was_growing and not has_grown and not is_alive(self._trace.meta.pid):
            self._trace.forget()  # nobody writes a last word where the program was killed
            has_grown = True
        self._was_growing = self._trace.is_growing
        return News(has_grown, trouble)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)  # noqa: PTH116 - as the reader does
    except OSError:
        return None
    return facts.st_dev, facts.st_ino
