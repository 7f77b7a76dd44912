"""What is recorded of one run of a test, and the folder that its files go to."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.after_import import after_import
from agviz.errors import AgvizError
from agviz.record.late_store import LateStore
from agviz.record.options import Options, SomePasses
from agviz.recording import Recording, in_the_way
from agviz.testing.slug import TEARDOWN, TestPart
from agviz.traces.dumps import TIMEOUT
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.record.provenance import Provenance
    from agviz.record.recorder import Recorder
    from agviz.record.stores import Store
    from agviz.testing.running_trace import RunningTrace
    from agviz.testing.settings import Choice
    from agviz.traces.reader import Trace

TRACE: Final = "trace.agviz"
GRAPH: Final = "graph.svg"
DOT: Final = "graph.dot"
SUMMARY: Final = "summary.txt"
REPORT: Final = "report.html"
_OURS: Final = (TRACE, f"{TRACE}-wal", f"{TRACE}-shm", GRAPH, DOT, SUMMARY, REPORT)
MOST_BYTES: Final = 200_000_000
"""Of a trace without whole gradients: a suite's are to fit into what a run uploads."""
PATIENCE: Final = 2.0
"""Seconds of a test, from its first backward on, that are recorded in memory."""


class FailedSubtest(NamedTuple):
    """A part of a test that goes on."""

    error: BaseException | None
    said: str
    """What pytest prints of it."""


class Attempt:
    """Records from :meth:`start` to :meth:`stop`, if torch is imported by then.

    Then either :meth:`keep` or :meth:`let_go` says what becomes of it.

    Args:
        run: of which test.
        output: where its folder goes.
        choice: what holds for the test.
        provenance: where nodes come from, in all tests.
        before: what was recorded of the same test until now, whose names go on to hold.
        max_bytes: as of :class:`~agviz.record.options.Options`.
    """

    def __init__(
        self,
        run: TestPart,
        output: Path,
        choice: Choice,
        provenance: Provenance,
        before: Attempt | None = None,
        *,
        max_bytes: int | None = None,
    ) -> None:
        self.run = run
        folder = self.folder = output / run.folder
        self.choice = choice
        self.wrong = ""
        """What the plugin itself failed the test for."""
        self.has_passed = False
        """Whether the test did, as far as its call goes."""
        self.has_missed_deadline = False
        """Whether the test then ran once more, without this."""
        self.is_reported = False
        """Whether a failure was reported already."""
        self.subtests: list[FailedSubtest] = []
        """Those that failed: then the test fails, too, but pytest says so late."""
        self.reported_passes = 0
        """Of how many of its passes subtests have reported already."""
        self._recording = _Recording(
            folder / TRACE,
            Options(
                values=choice.values,
                check_forward=choice.check_forward,
                provenance=False,
                engine=choice.engine,
                max_bytes=max_bytes,
                thinned=None if choice.needs_all_passes else SomePasses(),
            ),
            patience=0.0 if choice.mode == "on" else PATIENCE,
            script=run.test,
            argv=[],
        )
        self._recording.provenance = provenance
        if before is not None:
            self._recording.names = before._recording.names
        self._problem = ""
        self._forget: Callable[[], None] = lambda: None
        self._is_over = False

    def start(self) -> None:
        """Record from now on, or from the import of torch on. An older run's files go."""
        for folder in self._replaced():
            _remove(folder)
        self._forget = after_import("torch", self._start)

    def _start(self) -> None:
        try:
            self._recording.start()
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._recording.stop()
            self._problem = in_the_way(error)

    def stop(self) -> None:
        """Give torch its engine back; a second call has no effect."""
        if not self._is_over:
            self._is_over = True
            self._forget()
            if "live" in vars(self):
                self.live.close()
            self._recording.stop()

    def keep(self) -> None:
        """Complete the file."""
        self.stop()
        if self._recorder is not None:
            self._recorder.close()

    def freeze(self) -> None:
        """Complete the file with what all threads are doing, whatever hangs; on any thread."""
        if self._recorder is not None:
            self._recorder.dump(TIMEOUT)
            self._recorder.close()
            self._is_over = True

    def let_go(self) -> None:
        """Leave no file."""
        self.stop()
        if self._recorder is not None:
            self._recording.late.give_up()
            self._recorder.discard()

    @functools.cached_property
    def live(self) -> RunningTrace:
        """The trace as it is now, with all that can be asked of one."""
        from agviz.testing.running_trace import RunningTrace

        return RunningTrace(self.folder / TRACE, self.flush)

    @property
    def has_recorded(self) -> bool:
        """Whether backward was called."""
        return self._recorder is not None

    @property
    def remark(self) -> str:
        """Which engine served, where it is not the one to expect."""
        return self._recording.remark

    @property
    def passes(self) -> int:
        """How many have begun, those inside of others among them."""
        return self._recording.late.begun

    @property
    def seconds(self) -> float:
        """How long backward passes took that have ended."""
        return self._recording.late.passed_ns / 1e9

    @property
    def problem(self) -> str:
        """Why nothing could be recorded, or written."""
        return self._problem or self._recording.late.problem

    def measured(self) -> Iterator[Any] | None:
        """What :meth:`LateStore.measured` gives; None: it has to be read from the file."""
        return None if self._recorder is None else self._recording.late.measured()

    def flush(self) -> None:
        """Have everything so far be readable.

        Raises:
            agviz.errors.AgvizError: there is nothing yet.
        """
        if self._recorder is None:
            raise AgvizError(self.problem or f"{self.run.test} has run no backward pass")
        self._recorder.flush()
        if self.problem:
            raise AgvizError(self.problem)

    def open(self) -> Trace:
        """What was recorded.

        Raises:
            agviz.errors.AgvizError: there is nothing.
        """
        from agviz.traces.reader import Trace

        self.flush()
        return Trace.open(self.folder / TRACE)

    @property
    def _recorder(self) -> Recorder | None:
        return self._recording.recorder

    def _replaced(self) -> Iterator[Path]:
        """Folders of earlier runs of the test, in which it may have been run again and again."""
        output = os.fspath(self.folder.parent)
        if not os.path.isdir(output):  # noqa: PTH112 - most have none: a Path for each is dear
            return
        if self.folder.is_dir():
            yield self.folder
        if self.run.rerun or self.run.part:
            return
        for rerun in itertools.count():
            parts = [TestPart(self.run.test, rerun, part) for part in ("", TEARDOWN)]
            named = [os.path.join(output, part.folder) for part in parts]  # noqa: PTH118
            found = [Path(path) for path in named if os.path.isdir(path)]  # noqa: PTH112
            yield from (path for path in found if path != self.folder)
            if rerun and not found:
                return


class _Recording(Recording):
    """Keeps what it records in memory, and leaves open what becomes of it.

    Args:
        path: the file that may be written.
        options: what to record.
        patience: as of :class:`~agviz.record.late_store.LateStore`.
        about: for the reader.
    """

    def __init__(self, path: Path, options: Options, *, patience: float, **about: Any) -> None:
        super().__init__(path, options, **about)
        self.late = LateStore(patience)

    def _make_store(self) -> Store:
        return self.late

    def _close(self, error: BaseException | None) -> None:  # noqa: ARG002
        self._is_over = True


def _remove(folder: Path) -> None:
    """Remove what is ours; what can't be is replaced, or in the way when that is to be written."""
    for name in _OURS:
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # someone else's files are in it
        folder.rmdir()
