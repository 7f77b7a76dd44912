"""The thread that writes the file of a recording.

Note [No fork while a file is written]
SQLite has locks for the whole process. A child made while another thread holds one finds it held
for ever, and would wait for it when it opens a file of its own. So ``fork`` waits until no thread
is writing, for some seconds at most.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agviz.errors import TraceError
from agviz.record.descriptors import FilesLostError
from agviz.record.forward_ops import ForwardOps
from agviz.record.journal import Journal
from agviz.record.new_file import alone_in, create, remove
from agviz.record.writer import (
    PAGE_BYTES,
    PAGE_BYTES_FOR_VALUES,
    Graph,
    Introduction,
    Origins,
    Parameters,
    SavedHealth,
    SideRow,
    Writer,
)
from agviz.traces.dumps import TIMEOUT
from agviz.words.paths import shown
from agviz.words.safe import clean
from agviz_engine.events import NO_GRAPH_TASK
from agviz_engine.finalizers import Bell, held_off

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.record.copies import Copier
    from agviz.record.watchdog import Watchdog

log = logging.getLogger("agviz")

_SECONDS_BETWEEN_COMMITS: Final = 0.25
_SECONDS_AFTER_COMMIT: Final = 0.05
_SECONDS_IN_LARGE_GRAPH: Final = 0.01
"""Between commits; the events of a large graph take up more memory than the graph."""
_SECONDS_BEFORE_FORK: Final = 10.0
_BYTES_PER_VALUE: Final = 4
"""In the file, about."""
_BYTES_PER_BATCH: Final = 16 * 1024**2
"""Copies that are committed together: the WAL holds as much."""
_LEAST_FOR_LARGE_PAGES: Final = 100_000_000
"""Limit of a file's size: each table takes up a page at least."""

T = TypeVar("T")


class FileThread:
    """Writes what is in its journal, and next to it, to one file: some times a second.

    Args:
        path: the file to write; an older trace of this name is replaced.
        facts: what ``meta`` says of the recording.
        watchdog: says when to look at the threads.
        copier: makes the copies among the events; None: there are none.
        max_bytes: bound of the file; None: no limit.
        replace: whether an older trace of this name may be replaced.
    """

    has_replaced = False
    """Whether there was an older trace of this name."""
    is_wanted = True
    """Whether the file stays when it is closed."""
    ended = ""
    """The exception that ended what is recorded; empty: none did."""
    now_and_then: Callable[[], None] | None = None
    """Called on this thread some times a second. It must not raise."""
    when_drained: Callable[[], None] | None = None
    """Called on this thread some times a second, to bring what goes to the file. It must not raise.
    """
    when_stopped: Callable[[], None] | None = None
    """Called on this thread where recording has to stop."""
    when_timed_out: Callable[[], None] | None = None
    """Called on this thread after a timeout, when all is in the file."""

    def __init__(
        self,
        path: Path,
        facts: dict[str, Any],
        watchdog: Watchdog,
        *,
        copier: Copier | None,
        max_bytes: int | None,
        replace: bool,
    ) -> None:
        self.path, self.watchdog, self.copier = path, watchdog, copier
        self.journal = Journal()
        self.side: deque[SideRow] = deque()
        self.large: set[int] = set()
        """Graph tasks under way that have many nodes: little of them is to wait in memory."""
        self.lock = threading.RLock()
        """For the store: a child made by fork gets another, and a signal's handler may interrupt
        its holder."""
        self.early: Callable[[], list[SideRow]] = list
        """Gives what belongs to no graph task yet; called before each commit."""
        self.when_overdue: Callable[[], None] | None = None
        """Called on this thread after a timeout, before anything else is done about it."""
        self.when_refusing: Callable[[], None] | None = None
        """Called where nothing is kept from now on."""
        self._facts, self._max_bytes, self._replace = facts, max_bytes, replace
        self._opened: Future[None] = Future()
        """Whether the file could be opened, as soon as that is known."""
        self._flushes: deque[threading.Event] = deque()
        self._noted: deque[tuple[str, object]] = deque()
        self._closing, self._wake = Bell(), Bell()
        self._writing = threading.RLock()
        self.stopped = ""
        """Why the recording has come to a regular end before it was closed."""
        self.is_lost = False
        """Whether the program has closed the file: nothing of this process may touch it again."""
        self._thread: threading.Thread | None = None
        """None: the file has not been opened."""
        _threads.add(self)

    @property
    def is_recording(self) -> bool:
        """False once it was closed, or had to stop."""
        return not self.journal.is_refusing

    @property
    def is_closing(self) -> bool:
        """Whether what is written next is the last."""
        return self._closing.is_set()

    def open(self) -> None:
        """Make the file, and begin to write.

        Raises:
            agviz.errors.TraceError: the file can't be written to.
        """
        is_small = self._max_bytes is not None and self._max_bytes < _LEAST_FOR_LARGE_PAGES
        page_bytes = PAGE_BYTES if self.copier is None or is_small else PAGE_BYTES_FOR_VALUES
        with alone_in(self.path.parent):
            with self._writing:
                self.has_replaced = create(
                    self.path, self._facts, page_bytes=page_bytes, replace=self._replace
                )
            try:
                self._thread = threading.Thread(
                    target=self._run, name="agviz-recorder", daemon=True
                )
                self._thread.start()
            except RuntimeError as error:  # there are too many, or the interpreter ends
                self._opened.set_exception(error)
            unopened = self._opened.exception()
        if unopened is not None:
            remove(self.path)
            name = clean(os.fspath(shown(self.path)))
            raise TraceError(
                f"{name} can't be written ({unopened}); choose another place to record into"
            ) from unopened
        atexit.register(self.close)

    def close(self) -> None:
        """Write what is left and complete the file; a second call has no effect."""
        atexit.unregister(self.close)
        was_recording = self.is_recording
        self._closing.set()
        self._wake.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        self.refuse()
        if was_recording and not self.is_wanted:
            remove(self.path)

    def refuse(self) -> None:
        """Keep nothing from now on."""
        if self.when_refusing is not None:
            self.when_refusing()
        self.journal.refuse()
        self.side.clear()

    def unbind(self) -> None:
        """Call nobody any more.

        Those that are called refer to this: now all are gone as soon as nobody asks for them, and
        the garbage collector need not find them.
        """
        self.early = list
        self.when_overdue = self.when_refusing = self.when_drained = None
        self.when_stopped = self.when_timed_out = None

    def wake(self) -> None:
        """Commit soon."""
        if self._thread is not None:
            self._wake.set()

    def flush(self, timeout: float) -> bool:
        """Wait until everything until now can be read from the file.

        Returns:
            False where that took more than ``timeout`` seconds or recording has stopped.
        """
        if not self.is_recording:
            return False
        written = threading.Event()
        self._flushes.append(written)
        self._wake.set()
        deadline = time.monotonic() + timeout
        while not written.wait(0.05):
            is_alive = self._thread is not None and self._thread.is_alive()
            if time.monotonic() > deadline or not is_alive:
                return written.is_set()
        return True

    def dump(self, reason: str) -> None:
        """Write soon what all threads are doing."""
        self.watchdog.ask(reason)
        self._wake.set()

    def stop(self, why: str) -> None:
        """End the recording with a warning: the file ``why``."""
        self._forget()
        log.warning(
            "%s %s: recording has stopped, the program goes on",
            clean(os.fspath(shown(self.path))),
            why,
        )
        if self.when_stopped is not None:
            self.when_stopped()

    def end_early(self, why: str) -> None:
        """Complete the file with what was recorded until now, and ``why``."""
        self.stopped = why
        self.wake()

    def _forget(self) -> None:
        self.refuse()
        self.watchdog.under_way.clear()
        self.large.clear()

    def _forked(self) -> None:
        self.lock = threading.RLock()
        self._forget()
        atexit.unregister(self.close)

    def _run(self) -> None:
        with held_off(), self._writing:
            self._write()

    def _write(self) -> None:
        # The connection lives in this frame, so that a forked child neither uses nor closes it.
        try:
            writer = Writer(self.path, self._facts["start_ns"], self.watchdog)
        except (sqlite3.Error, OSError) as error:
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        try:
            if self._max_bytes is not None:
                writer.limit(self._max_bytes)
            self._drain_until_closed(writer)
            if self.is_recording or self.stopped:
                self._complete(writer)
            if self.stopped:
                self._forget()
        except FilesLostError as error:
            self.is_lost = True
            self.stop(f"can't be written any longer ({error})")
        except Exception as error:  # noqa: BLE001 - whatever happens here, the program goes on
            self.stop(f"can't be written any longer ({error})")
            with contextlib.suppress(sqlite3.Error, FilesLostError):
                writer.write_meta({"stopped": str(error)})
        finally:
            with contextlib.suppress(sqlite3.Error):
                writer.close()

    def _complete(self, writer: Writer) -> None:
        writer.build_indexes()
        facts = {
            "end_ns": time.monotonic_ns(),
            "end_unix_ns": time.time_ns(),
            "stopped": self.stopped,
            "ended": self.ended,
        }
        writer.write_meta(facts)
        # The file is complete without them.
        with contextlib.suppress(TraceError, sqlite3.Error, ValueError, OverflowError, ImportError):
            from agviz.record import shortcuts

            shortcuts.store(self.path, writer)

    def _drain_until_closed(self, writer: Writer) -> None:
        while True:
            closing = self.is_closing
            self._drain(writer)
            if closing or self.stopped:
                return
            self._look(writer)
            for each in (self.when_drained, self.now_and_then):
                if each is not None:
                    each()
            self._writing.release()
            self._rest()
            self._writing.acquire()

    def _rest(self) -> None:
        """Wait until there is something to be written."""
        if self.large:
            self._closing.wait(_SECONDS_IN_LARGE_GRAPH)
        else:
            self._closing.wait(_SECONDS_AFTER_COMMIT)
            self._wake.wait(_SECONDS_BETWEEN_COMMITS)
            self._wake.clear()

    def _look(self, writer: Writer) -> None:
        """Write what the threads are doing where nothing moves."""
        reason = self.watchdog.due()
        if reason is None:
            return
        if reason == TIMEOUT and self.when_overdue is not None:
            self.when_overdue()
        self.dump(reason)
        self._drain(writer)
        if reason == TIMEOUT and self.when_timed_out is not None:
            self.when_timed_out()

    def _drain(self, writer: Writer) -> None:
        # In this order: what came before a flush is in the batch, and so is the graph of every
        # event in it.
        flushes = _taken(self._flushes)
        counts = self.journal.counts
        side = [*self.early(), *_taken(self.side), *self.watchdog.dumps()]
        if any(counts):
            self.watchdog.moved = True
        if any(counts) or side:
            self._write_down(writer, side, counts)
        copier = self.copier
        if copier is not None and copier.is_full and not self._facts["values_stopped"]:
            why = f"their bound of {copier.room.most:,} bytes was reached"
            self._facts["values_stopped"] = why
            writer.write_meta({"values_stopped": why})
        while self._noted:
            writer.write_meta(dict([self._noted.popleft()]))
        for written in flushes:
            written.set()

    def note(self, fact: str, value: object) -> None:
        """Have a fact about the recording replaced in the file."""
        self._noted.append((fact, value))
        self.wake()

    def _write_down(self, writer: Writer, side: list[SideRow], counts: tuple[int, int]) -> None:
        """Write the first ``counts`` values of the journal, and what belongs to them."""
        most = sys.maxsize if self._max_bytes is None else self._max_bytes
        values = sum(counts) + sum(map(_values, side))
        is_little = self.copier is None and values <= most // 50 // _BYTES_PER_VALUE
        if is_little and writer.make_room(values * _BYTES_PER_VALUE):
            writer.write(self.journal, side, counts)
        else:
            self._write_bounded(writer, side, counts, most)

    def _write_bounded(
        self, writer: Writer, side: list[SideRow], counts: tuple[int, int], most: int
    ) -> None:
        """As `Writer.write`, a little at a time, each graph right before the events of its task.

        A writer that lags may find the graphs of more backward passes than the file has room for.
        What has come to the journal since ``counts`` waits: its graphs are not in ``side``, and its
        passes could be left out before these come.
        """
        nbytes = min(most // 50, _BYTES_PER_BATCH)
        # Passes whose side rows are written but whose events are not can't be left out: a batch has
        # the fewer events, the more side rows belong to them.
        rows = sum(counts)
        share = rows / max(1, rows + sum(map(_values, side)))
        values = max(1, int(most // 200 // _BYTES_PER_VALUE * share))
        early: list[SideRow] = []
        waiting: dict[int, list[SideRow]] = {}
        for thing in side:
            of_task = waiting.setdefault(getattr(thing, "graph_task", NO_GRAPH_TASK), [])
            (early if _is_early(thing) else of_task).append(thing)
        fits = _write_fitting(writer, early)
        # The graph of the next pass may leave no room for the end of this one.
        for batch in self.journal.batches(values, nbytes, waiting.keys(), counts):
            first = [thing for task in batch.graph_tasks() for thing in waiting.pop(task, [])]
            fits = fits and _write_fitting(writer, first)
            fits = fits and writer.make_room(len(batch) * _BYTES_PER_VALUE)
            if not fits:
                break
            writer.write(batch, [])
        if fits and all(_write_fitting(writer, left) for left in waiting.values()):
            return
        self.stopped = f"the limit of {most:,} bytes was reached"
        self.stop(f"has reached its limit of {most:,} bytes")


def _write_fitting(writer: Writer, side: list[SideRow]) -> bool:
    """Write each for which there is room, until there is none; whether there was for all."""
    for thing in side:
        if not writer.make_room(_values(thing) * _BYTES_PER_VALUE):
            return False
        writer.write(Journal(), [thing])
    return True


def _values(thing: SideRow) -> int:
    """Number of values that are written."""
    if isinstance(thing, Graph):
        return len(thing.nodes) * len(thing.nodes[0]) + len(thing.edges)
    if isinstance(thing, Origins):
        return len(thing.saved)
    if isinstance(thing, ForwardOps):
        return sum(14 + 30 * (len(op.inputs) + len(op.outputs)) for op in thing.ops)
    if isinstance(thing, Parameters):
        return 7 * len(thing.known.facts)
    return 24 * len(thing.values) if isinstance(thing, SavedHealth) else len(thing)


def _is_early(thing: SideRow) -> bool:
    """Whether it has to be in the file before the events of any graph task."""
    if isinstance(thing, ForwardOps):
        return thing.graph_task == NO_GRAPH_TASK
    return isinstance(thing, Introduction)


def _taken(things: deque[T]) -> list[T]:
    return [things.popleft() for _ in range(len(things))]


_threads: weakref.WeakSet[FileThread] = weakref.WeakSet()


class _Forking(threading.local):
    """What a thread holds while it forks the process."""

    def __init__(self) -> None:
        self.held = contextlib.ExitStack()


_forking = _Forking()


def _before_fork() -> None:
    """Note [No fork while a file is written]."""
    until = time.monotonic() + _SECONDS_BEFORE_FORK
    for thread in list(_threads):
        if thread._writing.acquire(timeout=max(0.0, until - time.monotonic())):
            _forking.held.callback(thread._writing.release)


def _after_fork() -> None:
    _forking.held.close()


def _after_fork_in_child() -> None:
    _after_fork()
    for thread in _threads:
        thread._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
    )
