"""Making the file of a recording: nobody else's is touched, and nobody else touches it.

Note [One recorder makes files in a folder]
Who replaces an older trace looks at it, removes it and makes a new one; two processes that do so at
once would remove each other's file, and write on into it. So each holds a lock of the folder from
before it looks until its file is open in a way that others see (:class:`Writer` holds a lock of
it). The file itself is made by ``O_EXCL``: what another program has put there meanwhile is left
alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

from agviz.errors import TraceError
from agviz.record.writer import PAGE_BYTES, on_local_disk, write_meta
from agviz.traces import schema
from agviz.traces.contents import is_alive
from agviz.words.paths import shown
from agviz.words.safe import clean

with contextlib.suppress(ImportError):  # Windows has no locks of folders
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_SECONDS_TO_WAIT: Final = 10.0
_SECONDS_BETWEEN_TRIES: Final = 0.01
_MODE: Final = 0o644
"""As SQLite itself has it."""


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make files while no other recorder does; note [One recorder makes files in a folder].

    Where a folder has no locks, as on some network file systems, it is done without.

    Raises:
        agviz.errors.TraceError: others are at it for too long.
    """
    if not hasattr(os, "O_DIRECTORY"):
        yield
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # making the file says what is wrong with it, if anything is
        yield
        return
    try:
        _lock(descriptor, folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            # A child made by fork meanwhile has the descriptor as well, and would hold the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    until = time.monotonic() + _SECONDS_TO_WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EINTR}:
                return
        else:
            return
        if time.monotonic() > until:
            raise TraceError(
                f"other processes keep {clean(str(folder))} locked; choose another place to record"
                " into"
            )
        time.sleep(_SECONDS_BETWEEN_TRIES)


def create(
    path: Path, facts: Mapping[str, Any], *, page_bytes: int = PAGE_BYTES, replace: bool = True
) -> bool:
    """Make an empty trace at ``path``; an older trace there is replaced.

    Args:
        path: the file.
        facts: what is written to ``meta``.
        page_bytes: of one page of the file; a power of two.
        replace: whether an older trace may be replaced.

    Returns:
        Whether there was an older trace.

    Raises:
        agviz.errors.TraceError: the path can't be written, holds something that is no trace, or
            another process is recording into it.
    """
    name = clean(os.fspath(shown(path)))
    try:
        _check_place(path, name)
        is_taken = os.path.lexists(path)
        if is_taken:
            if not replace:
                raise TraceError(f"{name} exists already; choose another name to record into")
            _remove_old_trace(path, name)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _MODE))
    except FileExistsError as error:
        raise TraceError(
            f"{name} was made by another process at this moment; choose another name to record into"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "this can't be a file's name"
        raise TraceError(
            f"{name} can't be written ({why}); choose another place to record into"
        ) from error
    try:
        _fill(path, facts, page_bytes)
    except sqlite3.Error as error:
        remove(path)
        raise TraceError(
            f"{name} can't be written ({error}); choose another place to record into"
        ) from error
    return is_taken


def remove(path: Path) -> None:
    """Remove a trace that nobody has open any more, with what SQLite keeps beside it."""
    for end in ("", "-journal", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


def _check_place(path: Path, name: str) -> None:
    if path.is_dir():
        raise TraceError(f"{name} is a folder; give the name of a file to record into")
    if not path.parent.is_dir():
        raise TraceError(
            f"there is no folder {clean(str(shown(path).parent))}; make it, then record again"
        )


def _fill(path: Path, facts: Mapping[str, Any], page_bytes: int) -> None:
    database = sqlite3.connect(path, timeout=5.0, isolation_level=None)
    try:
        database.execute(f"PRAGMA page_size = {page_bytes:d}")
        database.execute("BEGIN EXCLUSIVE")
        for statement in schema.TABLES.values():
            database.execute(statement)
        write_meta(database, facts)
        database.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION:d}")
        database.execute(f"PRAGMA application_id = {schema.APPLICATION_ID:d}")
        database.execute("COMMIT")
    finally:
        database.close()


def _remove_old_trace(path: Path, name: str) -> None:
    if not path.is_file():
        raise TraceError(f"{name} is not a regular file; choose another name to record into")
    if path.stat().st_size:
        try:
            database = sqlite3.connect(path, timeout=0.0, isolation_level=None)
            try:
                (application,) = database.execute("PRAGMA application_id").fetchone()
                # A writer keeps the file in WAL mode, and only the last one may leave that mode.
                (mode,) = database.execute("PRAGMA journal_mode = DELETE").fetchone()
                if application == schema.APPLICATION_ID and not on_local_disk(path):
                    _check_unused(database, name)
            finally:
                database.close()
        except sqlite3.OperationalError as error:
            raise TraceError(
                f"{name} is in use by another process; choose another name to record into"
            ) from error
        except sqlite3.DatabaseError:
            application, mode = 0, "delete"
        if application != schema.APPLICATION_ID or mode != "delete":
            raise TraceError(
                f"{name} exists and is not a trace; choose another name to record into"
            )
    try:
        path.unlink()
    except OSError as error:
        raise TraceError(
            f"{name} can't be replaced ({error.strerror}); choose another name to record into"
        ) from error


def _check_unused(database: sqlite3.Connection, name: str) -> None:
    """Where there is no WAL, hence no lock: see that the process that recorded it has ended."""
    facts = dict(database.execute("SELECT key, value FROM meta"))
    pid = json.loads(facts.get("pid", "0"))
    if facts.get("end_ns") == "null" and facts.get("stopped") == '""' and is_alive(pid):
        raise TraceError(f"{name} is in use by process {pid:d}; choose another name to record into")
