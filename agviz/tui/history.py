"""What was typed at the prompt, over all sessions of a user.

The file is in ``$XDG_STATE_HOME/agviz/history`` (``~/.local/state/agviz``, on Windows
``%LOCALAPPDATA%``), which only the user can read: one entry on each line, behind the sign of what
was asked for; one of several lines goes on in lines that begin with a full stop. Where it can't be
read or written, it is forgotten.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST: Final = 1_000
"""Entries that are kept."""
_LONGEST: Final = 2_000
"""Characters of one that is kept."""
_GOES_ON: Final = "."
"""Begins the further lines of an entry, as ``...`` does at Python's own prompt."""
_MOST_BYTES: Final = 1 << 20
"""A file that is larger is cut to its last entries."""


class History:
    """Entries by kind, the newest last.

    Args:
        kinds: the signs of what can be asked for, a character each.
        path: of the file; None: where users have it.
    """

    def __init__(self, kinds: Iterable[str], path: Path | None = None) -> None:
        self._path = _place() if path is None else path
        self._entries: dict[str, list[str]] = {kind: [] for kind in kinds}
        lines = self._read()
        last: list[str] | None = None
        for line in lines[-_MOST:]:
            kind, text = line[:1], clean(line[1:])
            if kind == _GOES_ON:
                if last:
                    last[-1] += f"\n{text}"
                continue
            last = self._entries.get(kind) if text else None
            if last is not None:
                last.append(text)

    def of(self, kind: str) -> list[str]:
        """What was typed there, the newest last."""
        return self._entries[kind]

    def add(self, kind: str, text: str) -> None:
        """Keep an entry, unless it is the last one again."""
        entries = self._entries[kind]
        if entries[-1:] == [text]:
            return
        entries.append(text)
        if len(text) <= _LONGEST:
            with contextlib.suppress(OSError):
                lines = text.replace("\n", f"\n{_GOES_ON}")
                self._write(f"{kind}{lines}\n")

    def _read(self) -> list[str]:
        """The lines of the file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return []
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return []
        with os.fdopen(descriptor, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        if size > _MOST_BYTES:
            lines = lines[-_MOST:]
            with contextlib.suppress(OSError):
                self._replace(lines)
        return lines

    def _write(self, line: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.write(descriptor, line.encode(errors="replace"))
        finally:
            os.close(descriptor)

    def _replace(self, lines: list[str]) -> None:
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix="history.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.writelines(f"{line}\n" for line in lines)
            Path(name).replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise


def _place() -> Path:
    named = os.environ.get("XDG_STATE_HOME") or ""
    if not named and sys.platform == "win32":
        named = os.environ.get("LOCALAPPDATA") or ""
    return (Path(named) if named else Path.home() / ".local" / "state") / "agviz" / "history"
