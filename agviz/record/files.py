"""Files of source, and frames in them, by names that do not depend on the machine."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

import agviz_engine
from agviz.traces.rows import Frame
from agviz.traces.schema import SOURCE_LIMIT
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

_MOST_FRAMES: Final = 400
_MOST_KNOWN: Final = 40_000
"""Names of files that are remembered."""
_MOST_BYTES: Final = 5_000_000
"""Of a file of source."""
_RUNNERS: Final = {"pytest", "_pytest", "pluggy", "pytest_timeout"}
"""Whose frames surround each test, or where one of them ends it."""


class Files:
    """Files by the names that a reader knows them by: nothing in a trace names the machine."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, bool]] = {}
        self._named: dict[str, str] = {}
        """Files as torch or Python names them, by the names that readers know."""
        self._own = Path(__file__).parents[1]
        self._launcher = os.path.join(sysconfig.get_path("scripts"), "agviz")  # noqa: PTH118 - text
        self._here = os.getcwd()  # noqa: PTH109 - compared as text

    def frame(self, file: str, line: int, function: str) -> Frame:
        """A frame of a file, by the name that torch or Python gives it."""
        known = self._known.get(file)
        if known is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
                self._named.clear()
            known = self._known[file] = self._shown(file), self._is_hidden(file)
            self._named[known[0]] = file
        return Frame(known[0], line, function, known[1])

    def source(self, frame: Frame) -> str:
        """Source line of a frame that this made, without indentation; empty: unknown.

        Of what Python has not read itself, as cells of a notebook, only regular files are read.
        """
        lines = self._lines(frame)
        return lines[frame.line - 1].strip()[:SOURCE_LIMIT] if 0 < frame.line <= len(lines) else ""

    def whole_source(self, frame: Frame) -> str:
        """Text of the file of a frame that this made; empty: unknown."""
        return "".join(self._lines(frame))

    def _lines(self, frame: Frame) -> list[str]:
        file = self._named.get(frame.file, "")
        try:
            if file not in linecache.cache:
                path = Path(file)
                if not path.is_file() or path.stat().st_size > _MOST_BYTES:
                    return []
            return linecache.getlines(file)
        except Exception as error:
            if comes_from_outside(error):
                raise
            return []

    def _shown(self, file: str) -> str:
        roots = [self._here, *map(os.path.abspath, sys.path)]
        inside = [root for root in roots if _is_inside(file, root) and root != os.sep]
        installed = [root for root in inside if root.endswith(("site-packages", "dist-packages"))]
        if installed:
            best = max(installed, key=len)
        else:
            best = self._here if self._here in inside else max(inside, key=len, default="")
        return file[len(best) :].lstrip(os.sep) if best else file

    def _is_hidden(self, file: str) -> bool:
        import torch

        if file.startswith(("<frozen ", "<eval_with_key>")):
            return True
        if file.removesuffix(f"{os.sep}__main__.py").removesuffix(".exe") == self._launcher:
            return True
        if self._shown(file).partition(os.sep)[0].removesuffix(".py") in _RUNNERS:
            return True
        own = [Path(torch.__file__).parent, Path(agviz_engine.__file__).parent, self._own]
        if any(_is_inside(file, str(root)) for root in own):
            return not _is_inside(file, str(self._own / "demo"))
        library = sysconfig.get_path("stdlib")
        others = sysconfig.get_path("purelib"), sysconfig.get_path("platlib")
        packages = ("site-packages", "dist-packages")
        return _is_inside(file, library) and not (
            any(_is_inside(file, other) for other in others)
            or any(f"{os.sep}{name}{os.sep}" in file for name in packages)
        )


def _is_inside(file: str, folder: str) -> bool:
    return file.startswith(folder.rstrip(os.sep) + os.sep)


def stack_of(
    innermost: FrameType | None, files: Files, lines: Mapping[FrameType, int] | None = None
) -> tuple[Frame, ...]:
    """The stack of a frame, outermost frame first.

    Args:
        innermost: the frame.
        files: gives files the names that a reader knows them by.
        lines: where frames were whose functions have been left.
    """
    frames: list[Frame] = []
    frame = innermost
    while frame is not None and len(frames) < _MOST_FRAMES:
        code = frame.f_code
        line = (lines or {}).get(frame) or frame.f_lineno or 0
        frames.append(files.frame(code.co_filename, line, code.co_name))
        frame = frame.f_back
    return tuple(reversed(frames))
