"""One run of one test: its recording, and the folder that its files go to."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agviz.after_import import after_import
from agviz.errors import AgvizError, TraceError
from agviz.options import Options, asked_to_check_forward
from agviz.recorded import Recorded
from agviz.recording import Recording
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.testing.settings import Choice
    from agviz.traces.recorder import Recorder

TRACE: Final = "trace.agviz"
GRAPH: Final = "graph.svg"
DOT: Final = "graph.dot"
SUMMARY: Final = "summary.txt"
_OURS: Final = (TRACE, f"{TRACE}-wal", f"{TRACE}-shm", GRAPH, DOT, SUMMARY)


_closing: Final = ThreadPoolExecutor(16, "agviz-closing")
"""Completes and removes files: that is mostly waiting, and begins in the order it was asked for."""
_pending: Final[set[Future[None]]] = set()


def _soon(call: Callable[[], None]) -> Future[None]:
    future = _closing.submit(call)
    _pending.add(future)
    future.add_done_callback(_pending.discard)
    return future


def wait_for_all() -> None:
    """Wait until all files are complete, or removed."""
    wait(tuple(_pending))


class Attempt:
    """Records from :meth:`start` to :meth:`stop`, if torch is imported by then.

    Args:
        node_id: pytest's name of the test.
        folder: where the trace goes; made when backward is called first.
        choice: what holds for the test.
    """

    def __init__(self, node_id: str, folder: Path, choice: Choice) -> None:
        self.node_id = node_id
        self.folder = folder
        self.choice = choice
        self.problem = ""
        """Why nothing could be recorded."""
        self.wrong = ""
        """What the plugin itself failed the test for."""
        self.is_told = False
        """Whether a failure was reported already."""
        self.live = Live(self)
        self._recording = _Recording(
            folder / TRACE,
            Options(values=choice.values, check_forward=asked_to_check_forward()),
            script=node_id,
            argv=[],
        )
        self._forget: Callable[[], None] = lambda: None
        self._is_over = False

    def start(self) -> None:
        """Record from now on, or from the import of torch on. An older run's files go."""
        self.remove()
        self._forget = after_import("torch", self._start)

    def _start(self) -> None:
        from agviz_engine import UnsupportedTorchError

        try:
            self._recording.start()
        except UnsupportedTorchError as error:
            self.problem = str(error)

    def stop(self) -> None:
        """Give torch its engine back and complete the file; a second call has no effect."""
        if self._is_over:
            return
        self._is_over = True
        self._forget()
        self.live.close()
        self._recording.stop()
        self.problem = self.problem or self._recording.problem

    def wait(self) -> None:
        """Wait until the file of a recording that was stopped is complete."""
        self._recording.closed()

    @property
    def has_recorded(self) -> bool:
        """Whether backward was called."""
        return self._recording.recorder is not None

    def flush(self) -> None:
        """Have everything so far be readable.

        Raises:
            agviz.errors.AgvizError: there is nothing yet.
        """
        if not self.has_recorded:
            raise AgvizError(self.problem or f"{self.node_id} has run no backward pass")
        if self._is_over:
            self.wait()
        else:
            self._recording.flush()

    def open(self) -> Trace:
        """What was recorded.

        Raises:
            agviz.errors.AgvizError: there is nothing.
        """
        self.flush()
        return Trace.open(self.folder / TRACE)

    def remove(self) -> None:
        """Remove what a run of this test has left, and nothing else."""
        if self.folder.is_dir():
            self._remove()

    def let_go(self) -> None:
        """Remove it soon, on another thread: once the file is complete."""
        if self.has_recorded:
            _soon(self._remove_complete)

    def _remove_complete(self) -> None:
        self.wait()
        self._remove()

    def _remove(self) -> None:
        for name in _OURS:
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # someone else's files are in it
            self.folder.rmdir()


class Live(Recorded):
    """The trace of a test that may still be running."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt.folder / TRACE)
        self._attempt = attempt

    @property
    def trace(self) -> Trace:
        """Everything else that can be asked of a trace, as it is now."""
        self._attempt.flush()
        return super().trace


class _Recording(Recording):
    """Makes the folder when backward is called for the first time."""

    def __init__(self, path: Path, options: Options, **about: Any) -> None:
        super().__init__(path, options, **about)
        self.problem = ""
        self._closed: Future[None] | None = None

    def closed(self) -> None:
        """Wait for the file to be complete."""
        if self._closed is not None:
            self._closed.result()

    def _close(self, error: BaseException | None) -> None:
        # Completing a file takes longer than many a test, which need not wait for it.
        if self._closed is None and self.recorder is not None:
            self._closed = _soon(partial(super()._close, error))
        elif self._closed is None:
            super()._close(error)

    def open(self) -> Recorder:
        try:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TraceError(f"{self.path.parent} can't be made: {error.strerror}") from error
            return super().open()
        except TraceError as error:
            self.problem = str(error)
            raise
