"""Stacks on their way to the file and back: each frame once, each stack once.

A stack is its innermost frame and the stack of that frame's caller, so that the nodes of a program
share most of theirs.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from agviz.traces.schema import SOURCE_FILE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agviz.traces.rows import Frame

_MOST_REMEMBERED: Final = 100_000
"""Frames and stacks in memory; after that the tables may hold one twice."""
_MOST_SHOWN: Final = 1_000
"""Frames of a stack that are read, the innermost; a recorder writes fewer."""
_LARGEST_LINE: Final = 2**31 - 1
_MOST_SOURCE: Final = 2**22
"""Bytes of all files of source together, as they are stored."""


class SourceReader(Protocol):
    """Who knows files of source."""

    def source(self, frame: Frame) -> str:
        """Source line of a frame; empty where that can't be had."""

    def whole_source(self, frame: Frame) -> str:
        """Text of its file; empty where that can't be had."""


class Stacks:
    """Numbers stacks, and keeps what is new for their tables.

    Args:
        string: numbers a text.
        sources: gives the source of frames; None: nobody does.
    """

    def __init__(self, string: Callable[[str], int], sources: SourceReader | None = None) -> None:
        self._string = string
        self._sources = sources
        self._files: set[int] = set()
        """Strings of files whose text was asked for."""
        self._room = _MOST_SOURCE
        self._whole: dict[tuple[Frame, ...], int] = {(): 0}
        self._stacks: dict[tuple[int, int], int] = {}
        self._frames: dict[Frame, int] = {}
        self._next_stack = 1
        self._next_frame = 1
        self._new = _nothing()

    def number(self, stack: tuple[Frame, ...]) -> int:
        """The id of a stack, outermost frame first; 0 for the empty one."""
        found = self._whole.get(stack)
        if found is None:
            found = 0
            for frame in stack:
                found = self._inner(found, self._frame(frame))
            if len(self._whole) > _MOST_REMEMBERED:
                self._whole = {(): 0}
            self._whole[stack] = found
        return found

    def taken(self) -> dict[str, list[Any]]:
        """The rows that are new since the last call, by table; one after the other."""
        new, self._new = self._new, _nothing()
        return new

    def _inner(self, caller: int, frame: int) -> int:
        found = self._stacks.get((caller, frame))
        if found is None:
            if len(self._stacks) > _MOST_REMEMBERED:
                self._stacks = {}
            found = self._stacks[caller, frame] = self._next_stack
            self._next_stack += 1
            self._new["stack"] += found, caller, frame
        return found

    def _frame(self, frame: Frame) -> int:
        found = self._frames.get(frame)
        if found is None:
            if len(self._frames) > _MOST_REMEMBERED:
                self._frames = {}
            found = self._frames[frame] = self._next_frame
            self._next_frame += 1
            file, function = self._string(frame.file), self._string(frame.function)
            self._new["frame"] += found, file, frame.line, function, frame.hidden
            if self._sources is not None and not frame.hidden:
                if text := self._sources.source(frame):
                    self._new["source_line"] += file, frame.line, self._string(text)
                if file not in self._files:
                    self._files.add(file)
                    self._keep_file(file, self._sources.whole_source(frame))
        return found

    def _keep_file(self, file: int, text: str) -> None:
        raw = text.encode(errors="replace")
        if 0 < len(raw) <= SOURCE_FILE_LIMIT:
            deflated = zlib.compress(raw)
            if len(deflated) <= self._room:
                self._room -= len(deflated)
                self._new["source_file"] += file, deflated


def _nothing() -> dict[str, list[Any]]:
    return {"frame": [], "stack": [], "source_line": [], "source_file": []}


def inflated(deflated: bytes) -> str:
    """The text of a stored file of source, which may be anything.

    Raises:
        ValueError: it is none.
    """
    inflating = zlib.decompressobj()
    try:
        raw = inflating.decompress(deflated, SOURCE_FILE_LIMIT + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(raw) > SOURCE_FILE_LIMIT or not inflating.eof:
        raise ValueError("a file of source is too long, or cut off")
    return raw.decode(errors="replace")


class StoredStacks:
    """The stacks of a file, each put together when it is first asked for.

    Args:
        frames: by id.
        stacks: caller and frame, by id.

    Raises:
        ValueError: a frame is missing or impossible, or a stack is no stack.
    """

    def __init__(self, frames: Mapping[int, Frame], stacks: Mapping[int, tuple[int, int]]) -> None:
        if any(not 0 <= frame.line <= _LARGEST_LINE for frame in frames.values()):
            raise ValueError("a line has an impossible number")
        for number, (caller, inner) in stacks.items():
            is_called = caller == 0 or (caller < number and caller in stacks)
            if number < 1 or inner not in frames or not is_called:
                raise ValueError("a stack is none")
        self._frames = frames
        self._stacks = stacks
        self._whole: dict[int, tuple[Frame, ...]] = {}

    def __contains__(self, number: object) -> bool:
        return number in self._stacks

    @property
    def frames(self) -> Iterable[Frame]:
        """All frames, in no order."""
        return self._frames.values()

    def lines(self, fits: Callable[[str], bool]) -> dict[int, frozenset[int]]:
        """The lines of a file on which the program's own frames of each stack are, by stack.

        Stacks without such a line are left out.

        Args:
            fits: whether a file is the one, by the name that frames have for it.
        """
        files: dict[str, bool] = {}
        found: dict[int, frozenset[int]] = {}
        for number in sorted(self._stacks):  # after its caller
            caller, inner = self._stacks[number]
            frame = self._frames[inner]
            is_there = files.get(frame.file)
            if is_there is None:
                is_there = files[frame.file] = fits(frame.file)
            lines = found.get(caller)
            if is_there and not frame.hidden:
                lines = (lines or frozenset()) | {frame.line}
            if lines:
                found[number] = lines
        return found

    def __getitem__(self, number: int) -> tuple[Frame, ...]:
        """The frames of a stack, outermost first."""
        found = self._whole.get(number)
        if found is None:
            frames: list[Frame] = []
            at = number
            while at and len(frames) < _MOST_SHOWN:
                at, frame = self._stacks[at]
                frames.append(self._frames[frame])
            found = self._whole[number] = tuple(reversed(frames))
        return found
