"""The text of a line of source, as it was recorded, or where its file is there."""

from __future__ import annotations

import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.traces.schema import SOURCE_LIMIT
from agviz.words.safe import clean

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from agviz.traces.rows import Frame

_MOST_BYTES: Final = 5_000_000


def source_line(frame: Frame, beside: str | os.PathLike[str] | None = None) -> str:
    """The line without its indentation; empty where it can't be had, which is no error.

    What the trace holds goes before what is in the file now, which may have changed. A trace may
    name any file: only regular files that end in ``.py`` are read.

    Args:
        frame: of a line whose file is absolute, or relative to the folder in which the program ran.
        beside: the trace; relative files are looked for here and in the folder of the trace.
    """
    if frame.source:
        return frame.source
    line = _found(frame, beside)[frame.line - 1 : frame.line]
    return clean(line[0].strip())[:SOURCE_LIMIT] if line else ""


def source_around(
    frame: Frame, beside: str | os.PathLike[str] | None = None, around: int = 4
) -> list[tuple[int, str]]:
    """Lines around that of a frame, each with its number and indentation.

    Only the line itself where its file is not there, or says something else there by now; empty
    where not even this can be had.

    Args:
        frame: as in :func:`source_line`.
        beside: the trace, as there.
        around: how many before and after it.
    """
    own = source_line(frame, beside)
    lines = _found(frame, beside)
    if not lines or clean(lines[frame.line - 1].strip())[:SOURCE_LIMIT] != own:
        return [(frame.line, own)] if own else []
    first = max(1, frame.line - around)
    shown = lines[first - 1 : frame.line + around]
    return [
        (number, clean(line.expandtabs().rstrip())[:SOURCE_LIMIT])
        for number, line in enumerate(shown, first)
    ]


def source_lines(frame: Frame) -> list[str]:
    """The lines of the file of a frame; empty where it can't be had."""
    return _found(frame, None)


def _found(frame: Frame, beside: str | os.PathLike[str] | None) -> list[str]:
    """The first file that has a line of that number; empty where there is none."""
    for path in _places(frame.file, beside):
        try:
            if not path.is_file() or path.stat().st_size > _MOST_BYTES:
                continue
            with tokenize.open(path) as file:
                lines = file.read().splitlines()
        except (OSError, SyntaxError, UnicodeError, ValueError):
            continue
        if 0 < frame.line <= len(lines):
            return lines
    return []


def find_file(file: str, beside: str | os.PathLike[str] | None = None) -> Path | None:
    """The file of Python that a frame names, where it is here; None: it is not.

    Args:
        file: as :attr:`agviz.traces.rows.Frame.file` has it.
        beside: the trace, as in :func:`source_line`.
    """
    for path in _places(file, beside):
        try:
            if path.is_file():
                return path.resolve()
        except (OSError, ValueError):
            continue
    return None


def _places(file: str, beside: str | os.PathLike[str] | None) -> Iterator[Path]:
    path = Path(file)
    if path.suffix == ".py":
        yield path
        if beside is not None and not path.is_absolute():
            yield Path(beside).parent / path
