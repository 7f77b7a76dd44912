"""Files that SQLite has open, by the numbers of their descriptors.

A program may close descriptors that are not its own (``os.closerange(3, 1024)``, as daemons do).
The next file that it opens gets such a number, and SQLite, which knows nothing of it, would write
the recording into that file. So each number is looked at before SQLite writes.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_NUMBERS = "/dev/fd"
"""A folder of the descriptors of this process, where the operating system has one."""


class FilesLostError(OSError):
    """The program has closed a file that the recording needs."""

    def __init__(self) -> None:
        super().__init__("the program has closed files that are not its own")


class Descriptors:
    """Those of a database that has just been opened and read.

    Args:
        path: the file of the database.
    """

    def __init__(self, path: Path) -> None:
        files = {identity_of(f"{path}{end}") for end in ("", "-wal", "-shm")} - {None}
        self._files: dict[int, tuple[int, int] | None] = {}
        try:
            numbers = [int(name) for name in os.listdir(_NUMBERS)]  # noqa: PTH208 - names only
        except OSError:
            return
        for number in numbers:
            identity = identity_of(number)
            if identity in files:
                self._files[number] = identity

    def check(self) -> None:
        """Look whether all of them are what they were.

        Raises:
            FilesLostError: they are not.
        """
        if any(identity_of(number) != identity for number, identity in self._files.items()):
            raise FilesLostError


def leave_open(database: sqlite3.Connection) -> None:
    """Keep a connection from closing descriptors, whose numbers are the program's now, ever."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))


def identity_of(file: str | int) -> tuple[int, int] | None:
    """Device and inode of a file, by its path or its descriptor; None: there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116 - or a number
    except OSError:
        return None
    return found.st_dev, found.st_ino
