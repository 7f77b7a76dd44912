"""Where the files of a recording are now, and what of their text the recording holds itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.dap.arguments import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.dap.channel import Json
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_SUFFIX: Final = ".py"
_MOST_LINES: Final = 100_000
"""Of a text that is put together from lines of a recording."""


class Sources:
    """Files of the program, which a recording names relative to the folder that it ran in.

    Args:
        roots: folders in which relative files are looked for.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [Path(os.path.abspath(root)) for root in roots]  # noqa: PTH100 - links stay
        self._paths: dict[str, Path | None] = {}
        self._numbers: dict[str, int] = {}
        """Files that are not at hand, by name; the editor asks for them by number."""

    def path(self, file: str) -> Path | None:
        """Where a file is; None: nowhere. A trace may name any file: only Python's are sought."""
        if file not in self._paths:
            self._paths[file] = self._find(file)
        return self._paths[file]

    def _find(self, file: str) -> Path | None:
        if not file.endswith(_SUFFIX):
            return None
        for root in self._roots:
            path = root / file
            try:
                if path.is_file():
                    return path
            except (OSError, ValueError):
                continue
        return None

    def source(self, frame: Frame) -> Json:
        """The file of a frame, as the protocol has it."""
        name = frame.file.rpartition("/")[2] or frame.file
        path = self.path(frame.file)
        if path is not None:
            return {"name": name, "path": str(path)}
        number = self._numbers.setdefault(frame.file, len(self._numbers) + 1)
        return {"name": name, "sourceReference": number, "origin": "lines kept in the recording"}

    def text(self, trace: Trace, number: int) -> str:
        """A file put together from the lines that the recording holds; other lines are empty.

        Raises:
            RequestError: there is no file of this number.
        """
        file = self._file(number)
        lines = {
            frame.line: frame.source
            for frame in trace.frames()
            if frame.file == file and frame.source and frame.line <= _MOST_LINES
        }
        if not lines:
            return f"# {file} is not at hand, and the recording holds no line of it\n"
        return "".join(f"{lines.get(line, '')}\n" for line in range(1, max(lines) + 1))

    def name(self, path: str, number: int) -> str:
        """How frames name a file, or with which path their name for it ends.

        Args:
            path: as the editor has it; empty where it asked for it by number.
            number: that number; 0: none.

        Raises:
            RequestError: there is no file of this number.
        """
        if number:
            return self._file(number)
        wanted = Path(path)
        for root in self._roots[:1]:
            if wanted.is_relative_to(root):
                return str(wanted.relative_to(root))
        folder = wanted.parent  # of the first package, beside which Python has found it
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        return str(wanted.relative_to(folder))

    def _file(self, number: int) -> str:
        known = {number: file for file, number in self._numbers.items()}
        if number not in known:
            raise RequestError(f"there is no source {number}")
        return known[number]

    def fits(self, path: str, number: int) -> Callable[[str], bool]:
        """Whether a file of the recording is the one that an editor names.

        Args:
            path: as the editor has it; empty where it asked for it by number.
            number: that number; 0: none.
        """
        if number:
            return lambda file: self._numbers.get(file) == number
        wanted = os.path.realpath(path)

        def is_it(file: str) -> bool:
            found = self.path(file)
            if found is not None:
                return os.path.realpath(found) == wanted
            return wanted == file or wanted.endswith(f"{os.sep}{file.lstrip(os.sep)}")

        return is_it
