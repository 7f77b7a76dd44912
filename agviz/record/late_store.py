"""A store whose file is made late, or never.

To make a file and to complete it takes longer than many a test or call that is to be recorded only
in case. So everything waits in memory until somebody asks for the file, until there is much of it,
or until some time has passed: from then on it is in the file what a program has done before it hung
or was killed.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from agviz.errors import TraceError
from agviz.record.journal import Journal
from agviz.record.new_file import remove
from agviz.record.stores import Store
from agviz_engine.emissions import clock
from agviz_engine.finalizers import held_off

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.measure.values import Health
    from agviz_engine.events import GraphTaskBegun


class LateStore(Store):
    """Keeps rows in memory, and makes the file, and the folder for it, when it is needed.

    That is when the recorder is flushed or closed, or after ``patience``. A folder or file that
    can't be made ends the recording with a warning.

    Args:
        patience: seconds until the file is made in any case; 0: it is made at once.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._is_in_memory = True
        self._is_new_folder = False
        self._under_way: set[int] = set()
        self._since_ns = 0
        self.begun = 0
        """How many graph tasks have begun: the id of the next one."""
        self.passed_ns = 0
        """How long backward passes took that have ended; those beside each other count once."""
        self.problem = ""
        """Why there is no file although there has to be one."""

    def start(self) -> None:
        """Have the file made in time."""
        if self._patience:
            _clock.remember(time.monotonic() + self._patience, self)
        else:
            self.flush()

    @property
    def is_recording(self) -> bool:
        """Whether rows are kept."""
        return self._file.is_recording

    def flush(self) -> None:
        """Make the file, unless that was done or :meth:`give_up` came first."""
        with self._file.lock:
            if not self._is_in_memory or not self.is_recording:
                return
            folder = self._file.path.parent
            self._is_new_folder = not folder.exists()
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._file.open()
            except OSError as error:
                self.problem = f"{folder} can't be made: {error.strerror}"
            except TraceError as error:
                self.problem = str(error)
            self._is_in_memory = False
            if self.problem:
                self._file.stop(f"can't be written ({self.problem})")

    def give_up(self) -> None:
        """End the recording and leave no file; a folder that was made for it goes, too."""
        with self._file.lock:
            self._file.refuse()
        if self._is_in_memory or self.problem:
            return
        self._file.close()
        remove(self._file.path)
        if self._is_new_folder:
            with contextlib.suppress(OSError):  # someone else's files are in it
                self._file.path.parent.rmdir()

    def measured(self) -> Iterator[Health] | None:
        """What was measured, while that is in memory; None: it is in the file."""
        kept, journal = self._file.journal, Journal()
        journal.keep(kept.events[:], kept.numbers[:])
        return journal.health() if self._is_in_memory else None

    def begin(self, event: GraphTaskBegun) -> None:
        """Note when a pass begins."""
        if not self._under_way:
            self._since_ns = event.time_ns
        self._under_way.add(event.graph_task)
        self.begun = event.graph_task + 1

    def skip(self, graph_task: int) -> None:
        """Count it."""
        self.begun = graph_task + 1

    def end(self, graph_task: int, *, has_failed: bool) -> None:  # noqa: ARG002
        """Add up how long passes took."""
        if graph_task in self._under_way:
            self._under_way.discard(graph_task)
            if not self._under_way:
                self.passed_ns += clock() - self._since_ns


class _Clock:
    """Makes the files of recordings that last, on one thread for all.

    To start a thread takes as long as to record a small pass. It ends when it has nothing to do.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due: list[tuple[float, int, weakref.ref[LateStore]]] = []
        """A heap; the number separates what is due at the same time. What has been let go is not
        kept for it: the garbage collector would visit all that hangs on it."""
        self._next_number = itertools.count().__next__

    def remember(self, when: float, store: LateStore) -> None:
        """Have ``store`` make its file at a time of ``time.monotonic()``."""
        with self._changed:
            entry = when, self._next_number(), weakref.ref(store)
            heapq.heappush(self._due, entry)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="agviz-patience", daemon=True
                )
                self._thread.start()
            elif self._due[0] is entry:
                self._changed.notify()

    def _run(self) -> None:
        while (store := self._next()) is not None:
            with held_off():
                store.flush()

    def _next(self) -> LateStore | None:
        """Wait for the next that is due and still records; None: there is none."""
        with self._changed:
            while self._due:
                when, _, known = self._due[0]
                left = when - time.monotonic()
                if left > 0 and _is_recording(known):
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._due)
                store = known()
                if store is not None and store.is_recording:
                    return store
            self._thread = None
            return None


def _is_recording(known: weakref.ref[LateStore]) -> bool:
    store = known()
    return store is not None and store.is_recording


_clock = _Clock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clock.__init__)  # type: ignore[misc]
