"""A recorder whose file is made late, or never.

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
from typing import TYPE_CHECKING, Any

from agviz.errors import TraceError
from agviz.traces.new_file import remove
from agviz.traces.recorder import Recorder
from agviz.traces.waiting import Waiting
from agviz_engine.instruments import clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from agviz.measure.values import Health
    from agviz.traces.writer import Writer
    from agviz_engine.events import GraphTaskBegun


class DeferredRecorder(Recorder):
    """Keeps what it hears in memory, and makes its file, and the folder for it, when it is needed.

    That is at the first :meth:`flush`, at :meth:`close`, or after ``patience``. A folder or file
    that can't be made ends the recording with a warning.

    Args:
        path: the file to write; an older trace of this name is replaced.
        patience: seconds until the file is made in any case; 0: it is made at once.
        recording: whatever else :class:`~agviz.traces.recorder.Recorder` takes.
    """

    def __init__(self, path: str | PathLike[str], *, patience: float, **recording: Any) -> None:
        self._patience = patience
        self._opening = threading.Lock()
        self._is_in_memory = True
        self._is_given_up = False
        self._is_new_folder = False
        self._since_ns = 0
        self.passed_ns = 0
        """How long backward passes took that have ended; those beside each other count once."""
        self.problem = ""
        """Why there is no file although there has to be one."""
        super().__init__(path, **recording)

    def open(self) -> None:
        """Make the file, unless that was done, and go on writing to it."""
        with self._opening:
            if not self._is_in_memory or self._is_given_up:
                return
            folder = self.path.parent
            self._is_new_folder = not folder.exists()
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._open_file()
            except OSError as error:
                self.problem = f"{folder} can't be made: {error.strerror}"
            except TraceError as error:
                self.problem = str(error)
            self._is_in_memory = False
            if self.problem:
                self._stop(f"can't be written ({self.problem})")

    def flush(self, timeout: float = 10.0) -> bool:
        """As of any recorder; the file is there from then on."""
        self.open()
        return super().flush(timeout)

    def close(self) -> None:
        """Complete the file, which is there then; a second call has no effect."""
        self.open()
        if not self.problem and not self._is_given_up:
            super().close()

    def give_up(self) -> None:
        """End the recording and leave no file; a folder that was made for it goes, too."""
        with self._opening:
            self._is_given_up = True
            self._refuse()
            self._beside.clear()
        if self._is_in_memory or self.problem:
            return
        super().close()
        remove(self.path)
        if self._is_new_folder:
            with contextlib.suppress(OSError):  # someone else's files are in it
                self.path.parent.rmdir()

    def measured(self) -> Iterator[Health] | None:
        """What was measured, while that is in memory; None: it is in the file."""
        waiting = Waiting()
        waiting.keep(self._waiting.events[:], self._waiting.numbers[:])
        return waiting.health() if self._is_in_memory else None

    def begin(self, event: GraphTaskBegun) -> None:
        """As of any recorder."""
        if not self._lookout.under_way:
            self._since_ns = event.time_ns
        super().begin(event)

    def _end_of(self, graph_task: int) -> None:
        was_under_way = bool(self._lookout.under_way)
        super()._end_of(graph_task)
        if was_under_way and not self._lookout.under_way:
            self.passed_ns += clock() - self._since_ns

    def _begin_writing(self) -> None:
        if self._patience:
            _clock.remember(time.monotonic() + self._patience, self)
        else:
            self.open()

    def _forked(self) -> None:
        super()._forked()
        self._opening = threading.Lock()
        self._is_given_up = True

    def _complete(self, writer: Writer) -> None:
        if not self._is_given_up:
            super()._complete(writer)


class _Clock:
    """Makes the files of recordings that last, on one thread for all.

    To start a thread takes as long as to record a small pass. It ends when it has nothing to do.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due: list[tuple[float, int, DeferredRecorder]] = []
        """A heap; the number tells apart what is due at the same time."""
        self._next_number = itertools.count().__next__

    def remember(self, when: float, recorder: DeferredRecorder) -> None:
        """Have ``recorder`` make its file at a time of ``time.monotonic()``."""
        with self._changed:
            entry = when, self._next_number(), recorder
            heapq.heappush(self._due, entry)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="agviz-patience", daemon=True
                )
                self._thread.start()
            elif self._due[0] is entry:
                self._changed.notify()

    def _run(self) -> None:
        while (recorder := self._next()) is not None:
            recorder.open()

    def _next(self) -> DeferredRecorder | None:
        """Wait for the next that is due and still records; None: there is none."""
        with self._changed:
            while self._due:
                when, _, recorder = self._due[0]
                left = when - time.monotonic()
                if left > 0 and recorder.is_recording:
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._due)
                if recorder.is_recording:
                    return recorder
            self._thread = None
            return None


_clock = _Clock()
os.register_at_fork(after_in_child=_clock.__init__)  # type: ignore[misc]
