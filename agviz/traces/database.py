"""Opening a trace file that may come from anyone, and asking it questions.

Note [Hostile files]
A file is believed nothing. It is opened read-only; its schema has to equal ours word by word, so
that no trigger, view, virtual table or expression of a stranger takes part in a query; no value
may be longer than a text of ours; a query is stopped when it works longer than a file of this size
can need (a damaged tree may lead in circles); and every value's type is checked when it is read.
All text passes :mod:`agviz.words.safe`. The file is touched through SQLite only: closing another
descriptor of it would drop the locks of a recorder in the same process.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agviz.errors import TraceError
from agviz.traces import formats, schema
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from agviz.traces.rows import GraphTaskRow

_STEPS_PER_CHECK: Final = 1_000_000
_STEPS_PER_BYTE: Final = 10
_LEAST_STEPS: Final = 20_000_000
_LONGEST_VALUE: Final = max(4 * schema.TEXT_LIMIT, schema.CHUNK_BYTES) + 1_000
_LONGEST_STATEMENT: Final = 100_000

_ROWS_AT_ONCE: Final = 2_000
_STREAMED: Final[dict[str, set[type]]] = {
    "i": {int},
    "n": {int, type(None)},
    "r": {int, float, type(None)},
}
_FAILURES: Final = (sqlite3.Error, UnicodeError, OverflowError, MemoryError)
"""What a query may raise; SQLite's own message may quote the file and be no UTF-8."""

_EXPECTED: Final = {
    ("table", name, name, statement.strip()) for name, statement in schema.TABLES.items()
}
_ALLOWED: Final = _EXPECTED | {
    ("index", name, "event", statement) for name, statement in schema.INDEXES.items()
}


class Database:
    """A trace file, open for reading. Raises TraceError for whatever is wrong with it."""

    def __init__(self, path: str | PathLike[str], before: int | None = None) -> None:
        self._path = Path(path)
        self._before = before
        self.name = clean(os.fspath(path))
        self._check_file()
        self._connection = self._open()
        try:
            self._check_contents()
        except BaseException:
            self._connection.close()
            raise
        self._connection.text_factory = _decode

    def close(self) -> None:
        """Let go of the file; a second call has no effect."""
        self._connection.close()

    def integers(self, sql: str, *parameters: int) -> list[tuple[int, ...]]:
        """Rows in which every value has to be an integer."""
        return self._checked(sql, parameters, {int})

    def numbers(self, sql: str, *parameters: int) -> list[tuple[int | None, ...]]:
        """Rows of integers and NULL."""
        return self._checked(sql, parameters, {int, type(None)})

    def reals(self, sql: str, *parameters: int) -> list[tuple[float | None, ...]]:
        """Rows of integers, floats (infinite ones too) and NULL."""
        return self._checked(sql, parameters, {int, float, type(None)})

    def texts(self, sql: str, *parameters: int) -> list[tuple[int, str]]:
        """Rows of an integer, or a text, and a text; the texts are not clean yet."""
        rows = self._checked(sql, parameters, {int, str})
        if any(type(text) is not str for _, text in rows):
            raise self.damaged("a value is of the wrong type")
        return rows

    def blobs(self, sql: str, *parameters: int) -> list[tuple[int, bytes]]:
        """Rows of an integer and a blob."""
        rows = self._rows(sql, parameters)
        if any(type(number) is not int or type(blob) is not bytes for number, blob in rows):
            raise self.damaged("a value is of the wrong type")
        return rows

    def stream(self, sql: str, *parameters: int, types: str) -> Iterator[tuple[Any, ...]]:
        """Rows one after the other, of which few are in memory at once.

        Args:
            sql: the query.
            parameters: of it.
            types: a letter for each column: ``i`` integers, ``n`` integers and NULL, ``r`` those
                and floats.
        """
        budget = self._budget()
        allowed = [_STREAMED[letter] for letter in types]
        try:
            cursor = self._connection.execute(sql, parameters)
            while True:
                self._connection.set_progress_handler(lambda: next(budget), _STEPS_PER_CHECK)
                rows = cursor.fetchmany(_ROWS_AT_ONCE)
                columns = zip(allowed, zip(*rows, strict=True), strict=bool(rows))
                if not all(set(map(type, column)) <= wanted for wanted, column in columns):
                    raise self.damaged("a value is of the wrong type")
                yield from rows
                if not rows:
                    return
        except _FAILURES as error:
            raise self._explain(error) from error

    def joined(self, table: str, first: int, end: int) -> bytes:
        """The column ``bytes`` of rows by ``id``, joined in order; read past SQLite's own copies.

        Args:
            table: its name.
            first: the first id.
            end: one behind the last.
        """
        ids = self.integers(
            f"SELECT id FROM {table} WHERE id >= ? AND id < ? ORDER BY id",  # noqa: S608 - ours
            first,
            end,
        )
        parts = []
        for (number,) in ids:
            try:
                with self._connection.blobopen(table, "bytes", number, readonly=True) as blob:
                    parts.append(blob.read())
            except _FAILURES as error:
                raise self._explain(error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def value(self, sql: str, *parameters: int) -> int:
        """The only value of a query that gives one integer."""
        ((value,),) = self.integers(sql, *parameters)
        return value

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[None]:
        """Give queries inside the rows of one moment, whatever is written meanwhile.

        The writer goes on (WAL), but can't take its WAL over into the file: for a short time only.
        """
        self._rows("BEGIN")
        try:
            yield
        finally:
            self._connection.rollback()

    def version(self) -> int:
        """A number that changes whenever another connection commits."""
        return self.value("PRAGMA data_version")

    def damaged(self, what: object) -> TraceError:
        """The error for a file whose contents make no sense."""
        return TraceError(f"{self.name} is damaged ({what}); record it again")

    def _checked(self, sql: str, parameters: tuple[int, ...], types: set[type]) -> list[Any]:
        rows = self._rows(sql, parameters)
        if not set(map(type, chain.from_iterable(rows))) <= types:
            raise self.damaged("a value is of the wrong type")
        return rows

    def _rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        budget = self._budget()
        self._connection.set_progress_handler(lambda: next(budget), _STEPS_PER_CHECK)
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except _FAILURES as error:
            raise self._explain(error) from error

    def _budget(self) -> Iterator[bool]:
        """False for as long as a query may go on."""
        steps = 0
        limit = _LEAST_STEPS
        while True:
            steps += _STEPS_PER_CHECK
            if steps > limit:
                limit = _LEAST_STEPS + _STEPS_PER_BYTE * self.size
            yield steps > limit

    @property
    def size(self) -> int:
        """Bytes of the file, with what has not yet been taken over from its WAL."""
        wal = self._path.with_name(self._path.name + "-wal")
        return sum(path.stat().st_size for path in (self._path, wal) if path.exists())

    def _check_file(self) -> None:
        try:
            facts = self._path.stat()
        except (OSError, ValueError) as error:
            why = "there is no file of this name"
            if not isinstance(error, FileNotFoundError):
                why = getattr(error, "strerror", None) or "this can't be a file's name"
            raise TraceError(f"{self.name} can't be opened: {clean(why)}") from error
        if stat.S_ISDIR(facts.st_mode):
            raise TraceError(f"{self.name} is a folder; give the name of one trace file")
        if not stat.S_ISREG(facts.st_mode):
            raise TraceError(f"{self.name} is not a regular file; give the name of a trace file")
        if not facts.st_size:
            raise TraceError(f"{self.name} is empty; nothing was recorded into it")
        if not os.access(self._path, os.R_OK):
            raise TraceError(f"{self.name} can't be read; ask for permission to read it")

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect("ro")
        except sqlite3.OperationalError as error:
            # A process that is ended in the midst of a transaction leaves a journal to be rolled
            # back, for which the file has to be written to.
            if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
                return self._rolled_back(error)
            # A WAL needs shared memory beside the file; in a folder that can't be written, a file
            # whose WAL is empty can be read all the same.
            wal = self._path.with_name(self._path.name + "-wal")
            if (wal.exists() and wal.stat().st_size) or os.access(self._path.parent, os.W_OK):
                raise self._explain(error) from error
        except _FAILURES as error:
            raise self._explain(error) from error
        try:
            return self._connect("ro&immutable=1")
        except _FAILURES as error:
            raise self._explain(error) from error

    def _rolled_back(self, error: sqlite3.OperationalError) -> sqlite3.Connection:
        """Open a file once its last transaction, which did not come to its end, is taken back."""
        try:
            self._connect("rw").close()
            return self._connect("ro")
        except _FAILURES:
            raise self._explain(error) from error

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=10.0, isolation_level=None)
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST_STATEMENT)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA mmap_size = 0")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_contents(self) -> None:
        if self.value("PRAGMA application_id") != schema.APPLICATION_ID:
            raise TraceError(f"{self.name} is not a trace of agviz, but another SQLite database")
        version = self.value("PRAGMA user_version")
        if version > schema.SCHEMA_VERSION:
            raise TraceError(
                f"{self.name} was written by a newer agviz (format {version}, this one reads up to "
                f"{schema.SCHEMA_VERSION}); update agviz to read it"
            )
        if version not in formats.FORMATS:
            raise TraceError(
                f"{self.name} was written by an older agviz (format {version}, this one reads "
                f"{formats.readable()}) from before release {formats.FIRST_RELEASE}, the first"
                " whose files are read by later ones; record it again"
            )
        found = set(self._rows("SELECT type, name, tbl_name, sql FROM sqlite_schema LIMIT 100"))
        is_known = _EXPECTED <= found <= _ALLOWED
        if version < schema.SCHEMA_VERSION:
            is_known = formats.digest(found) in formats.FORMATS[version].schemas
        if not is_known:
            raise self.damaged("its tables are not those of a trace")
        if version < schema.SCHEMA_VERSION or self._before is not None:
            self._lay_views(version)

    def earlier(self, graph_task: int) -> Database:
        """The same file, opened anew, as it was before a graph task began."""
        return Database(self._path, graph_task)

    def _lay_views(self, version: int) -> None:
        """Lay views over the tables of an earlier format, or moment (Note [Earlier formats])."""
        try:
            self._connection.execute("PRAGMA query_only = OFF")
            for statement in formats.views(version, self._before):
                self._connection.execute(statement)
            self._connection.execute("PRAGMA query_only = ON")
        except _FAILURES as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> TraceError:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return TraceError(f"{self.name} is being written to at this moment; try again")
        if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
            return TraceError(f"{self.name} is not a trace of agviz; give a file named *.agviz")
        return self.damaged(clean(str(error)) or type(error).__name__)


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def of(number: int | None, column: str = "graph_task") -> str:
    """The condition that limits a query to a graph task, say; None: to none in particular."""
    return "" if number is None else f"AND {column} = ?"


def along(graph_task: int | None) -> str:
    """The condition of :func:`of` for a query in order of ``seq``, past the index for that."""
    return "" if graph_task is None else "AND +graph_task = ?"


DURING: Final = "+event.graph_task = ? AND event.seq BETWEEN ? AND ?"
"""The same where all events of a graph task are looked at; its parameters are those of
:func:`place`."""


def place(task: GraphTaskRow) -> tuple[int, int, int]:
    """A graph task, and the range of its events."""
    return task.id, task.begin_seq, task.last_seq


def given(number: int | None) -> tuple[int, ...]:
    """The parameter of :func:`of` or :func:`along`."""
    return () if number is None else (number,)
