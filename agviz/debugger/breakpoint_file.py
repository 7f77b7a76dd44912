"""The file that keeps breakpoints, program by program: ``.agviz/breakpoints.json``.

It lies in the folder in which the debugger is started. A program is its script, by its path in
that folder, or ``-m MODULE``. Files of version 1 did not say of which program their breakpoints
are; they are given to each, switched off, until somebody switches them on or removes them.

Beside them are the expressions that the user watches, under a name of their own, which an agviz
that knows nothing of them passes over.

Somebody else may have written the file. What is no list of breakpoints is refused in one sentence
and left as it is, and nothing is saved over it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from agviz.debugger.breakpoints import Breakpoint
from agviz.debugger.expressions import Expression
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

PLACE: Final = Path(".agviz") / "breakpoints.json"
"""In the folder of the project."""
VERSION: Final = 2
MOST: Final = 1_000
"""Breakpoints in a file."""
_MOST_BYTES: Final = 1_000_000
_UNCLAIMED: Final = ""
"""Represents the program where none is known."""


@dataclass(frozen=True)
class WatchedExpression:
    """An expression that the user wants to see at each stop."""

    text: str
    is_printed: bool
    """Whether it is printed with what the program prints (``:display``), or else shown in place."""

    def __post_init__(self) -> None:
        Expression(self.text)

    def to_json(self) -> dict[str, str]:
        """As it is in the file."""
        return {"display" if self.is_printed else "watch": self.text}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """One that :meth:`to_json` gave, or somebody wrote by hand.

        Raises:
            agviz.errors.AgvizError: it is none.
        """
        if isinstance(data, dict) and len(data) == 1:
            ((word, text),) = data.items()
            if word in {"watch", "display"} and isinstance(text, str):
                return cls(text, word == "display")
        raise AgvizError("what is watched is {'watch': EXPRESSION} or {'display': EXPRESSION}")


class _Contents(NamedTuple):
    """What the file holds, by program."""

    breakpoints: dict[str, list[Breakpoint]]
    watches: dict[str, list[WatchedExpression]]


class BreakpointFile:
    """The breakpoints of one program, and what is watched in it.

    Args:
        folder: of the project.
        program: path of the script, or ``-m MODULE``.
    """

    def __init__(self, folder: Path, program: str) -> None:
        self.path = folder / PLACE
        self.unclaimed: list[Breakpoint] = []
        """Those of no known program among what was loaded; all are switched off."""
        self._program = _within(folder, program)
        self._is_foreign = False
        self.watches: list[WatchedExpression] = []
        """What was loaded of the expressions that are watched."""

    def load(self) -> list[Breakpoint]:
        """What was saved for the program, and what is of no known one; empty: there is no file.

        Raises:
            agviz.errors.AgvizError: the file is not ours; it is left untouched from now on.
        """
        try:
            programs, watches = self._contents()
        except AgvizError as error:
            self._is_foreign = True
            raise AgvizError(f"the breakpoints in {self.path} can't be read: {error}") from None
        self.watches = watches.get(self._program, [])
        self.unclaimed = [each.changed(enabled=False) for each in programs.get(_UNCLAIMED, ())]
        return [*programs.get(self._program, ()), *self.unclaimed]

    def save(self, breakpoints: Sequence[Breakpoint]) -> None:
        """Keep these, without temporary ones and counts of hits.

        Those of no known program remain so until they are switched on or changed.

        Raises:
            agviz.errors.AgvizError: they can't be written, or the file there is not ours.
        """
        kept = [each.changed(hits=0, number=0) for each in breakpoints if not each.temporary]

        def change(contents: _Contents) -> None:
            programs = contents.breakpoints
            programs[self._program] = [each for each in kept if each not in self.unclaimed]
            programs[_UNCLAIMED] = [each for each in kept if each in self.unclaimed]

        self._change(change, "breakpoints", is_empty=not kept)

    def save_watches(self, watches: Sequence[WatchedExpression]) -> None:
        """Keep these expressions.

        Raises:
            agviz.errors.AgvizError: they can't be written, or the file there is not ours.
        """

        def change(contents: _Contents) -> None:
            contents.watches[self._program] = list(watches)

        self._change(change, "expressions", is_empty=not watches)

    def _change(self, change: Callable[[_Contents], None], what: str, *, is_empty: bool) -> None:
        if self._is_foreign:
            raise AgvizError(
                f"{self.path} could not be read and is left as it is; these {what} are"
                " forgotten at the end"
            )
        if is_empty and not self.path.exists():
            return
        try:
            contents = self._contents()  # another debugger may have saved its own meanwhile
        except AgvizError as error:
            raise AgvizError(f"the {what} can't be saved in {self.path}: {error}") from None
        change(contents)
        data: dict[str, Any] = {"version": VERSION, "programs": _by_program(contents.breakpoints)}
        if watches := _by_program(contents.watches):
            data["watches"] = watches
        try:
            self.path.parent.mkdir(exist_ok=True)
            _write(self.path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise AgvizError(
                f"the {what} can't be saved in {self.path}: {error.strerror}"
            ) from None

    def _contents(self) -> _Contents:
        text = _read(self.path)
        return _Contents({}, {}) if text is None else _parsed(text)


def _within(folder: Path, program: str) -> str:
    """A program as it is written in the file of a folder."""
    with contextlib.suppress(ValueError):
        return Path(program).relative_to(folder.absolute()).as_posix()
    return program


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


def _parsed(text: str) -> _Contents:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise AgvizError("it is no JSON") from None
    if not isinstance(document, dict):
        raise AgvizError("it holds no breakpoints")
    data: Any
    if document.get("version") == 1:
        data = {_UNCLAIMED: document.get("breakpoints")}
    elif document.get("version") == VERSION:
        data = document.get("programs")
    else:
        raise AgvizError("it is from another version of agviz")
    return _Contents(
        _read_each(data, Breakpoint.from_json, "breakpoints"),
        _read_each(document.get("watches", {}), WatchedExpression.from_json, "expressions"),
    )


def _read_each(data: Any, read: Callable[[object], T], what: str) -> dict[str, list[T]]:
    """Lists of one kind, by program."""
    if not isinstance(data, dict) or not all(isinstance(each, list) for each in data.values()):
        raise AgvizError(f"it holds no {what}")
    if sum(map(len, data.values())) > MOST:
        raise AgvizError(f"it holds more than {MOST:,}")
    return {program: [read(each) for each in several] for program, several in data.items()}


def _by_program(
    several: Mapping[str, Sequence[Breakpoint | WatchedExpression]],
) -> dict[str, list[Any]]:
    """Lists by program as they are written."""
    return {
        program: [each.to_json() for each in some]
        for program, some in sorted(several.items())
        if some
    }


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
