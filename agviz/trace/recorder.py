"""Recorder: the instrument that writes everything it hears to a trace file.

Note [Recording must not be felt]
The engine's threads only put an event at the end of a list, which is atomic. A thread of the
recorder takes the events out in batches, at least three times a second, and commits them. What the
engine does never depends on it: where the file can't be written any longer (disk full), one
warning is logged and recording ends, and a child made by ``fork`` records nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import platform
import sqlite3
import sys
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from agviz import __version__
from agviz.errors import TraceError
from agviz.trace import shortcuts
from agviz.trace.codec import PREFIX
from agviz.trace.text import clean
from agviz.trace.writer import Graph, Introduction, Writer, create
from agviz_engine.events import CPU_QUEUE, NO_GRAPH_TASK
from agviz_engine.instruments import Instrument, Live

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from types import TracebackType

    from torch import Tensor

    from agviz.trace.names import Names
    from agviz_engine import events
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz")

_SECONDS_BETWEEN_COMMITS: Final = 0.25
_SECONDS_AFTER_COMMIT: Final = 0.05
_MOST_WAITING: Final = 1_500_000
"""Numbers and texts; a graph task does not begin before the writer has come down to this (some
60 MB)."""

T = TypeVar("T")


class Recorder(Instrument):
    """Records every event, the graphs and the threads into one file.

    Args:
        path: the file to write; an older trace of this name is replaced.
        names: where parameter names and module paths come from.
        steps: which calls of backward to record, counted from 0 without reentrant ones; None: all.
        script: what is being run, for the reader; ``sys.argv[0]`` by default.
        argv: its arguments; ``sys.argv[1:]`` by default.

    Raises:
        agviz.errors.TraceError: the file can't be written to; nothing was started then.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        names: Names | None = None,
        steps: range | None = None,
        script: str | None = None,
        argv: list[str] | None = None,
    ) -> None:
        self.path = Path(path)
        self._names = names
        self._steps = steps
        self._steps_seen = 0
        self._wanted = {NO_GRAPH_TASK}
        self._introduced: set[int] = set()
        self._waiting: list[Any] = []
        """Events: Note [A flat list of what waits]."""
        self._beside: deque[Graph | Introduction] = deque()
        self._flushes: deque[threading.Event] = deque()
        self._note: Callable[[tuple[Any, ...]], None] = self._waiting.extend
        if steps is not None:
            self._note = self._note_wanted
        self._start_ns = time.monotonic_ns()
        torch = sys.modules.get("torch")
        create(
            self.path,
            {
                "script": sys.argv[0] if script is None else script,
                "argv": sys.argv[1:] if argv is None else argv,
                "pid": os.getpid(),
                "started_unix_ns": time.time_ns(),
                "start_ns": self._start_ns,
                "end_ns": None,
                "python": platform.python_version(),
                "torch": "" if torch is None else str(torch.__version__),
                "agviz": __version__,
                "partial": steps is not None,
                "stopped": "",
            },
        )
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agviz-recorder", daemon=True)
        self._thread.start()
        _recorders.add(self)
        atexit.register(self.close)

    def close(self) -> None:
        """Write what is left and complete the file; a second call has no effect."""
        atexit.unregister(self.close)
        self._closing = True
        self._wake.set()
        self._thread.join()
        self._note = _ignore

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_recording(self) -> bool:
        """False once it was closed, or had to stop."""
        return self._note is not _ignore

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything heard so far can be read from the file.

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
            if time.monotonic() > deadline or not self._thread.is_alive():
                return written.is_set()
        return True

    def any_event(self, event: events.Event, live: Live) -> None:  # noqa: ARG002
        """Keep an event; the registry calls this directly for every kind not named below."""
        self._note(PREFIX[type(event)] + event)

    def graph_task_begun(self, event: events.GraphTaskBegun, live: Live) -> None:  # noqa: ARG002
        """Decide whether this graph task is recorded; wait where the writer lags far behind."""
        if self._steps is not None:
            self._choose(event, self._steps)
        if event.parent < 0 and event.thread not in self._introduced and self.is_recording:
            self._introduced.add(event.thread)
            thread = threading.current_thread()
            self._beside.append(
                Introduction(event.thread, thread.name, CPU_QUEUE, thread.native_id or 0)
            )
        self._note(PREFIX[type(event)] + event)
        if len(self._waiting) > _MOST_WAITING:
            self.flush()

    def dependencies_computed(self, event: events.DependenciesComputed, live: Live) -> None:
        """Keep the graph as well, while its nodes are alive."""
        self._note(PREFIX[type(event)] + event)
        wanted = self._steps is None or event.graph_task in self._wanted
        if wanted and live.graph_task is not None and self.is_recording:
            self._beside.append(self._graph(event.graph_task, live.graph_task.nodes))

    def graph_task_finished(self, event: events.GraphTaskFinished, live: Live) -> None:  # noqa: ARG002
        """Have the writer commit soon."""
        self._note(PREFIX[type(event)] + event)
        self._wake.set()

    def graph_task_failed(self, event: events.GraphTaskFailed, live: Live) -> None:  # noqa: ARG002
        """Have the writer commit soon."""
        self._note(PREFIX[type(event)] + event)
        self._wake.set()

    def _choose(self, event: events.GraphTaskBegun, steps: range) -> None:
        if event.parent < 0:
            wanted = self._steps_seen in steps
            self._steps_seen += 1
        else:
            wanted = event.parent in self._wanted
        if wanted:
            self._wanted.add(event.graph_task)

    def _note_wanted(self, waiting: tuple[Any, ...]) -> None:
        if waiting[5] in self._wanted:  # the graph task, behind kind, None, seq, time and thread
            self._waiting.extend(waiting)

    def _graph(self, graph_task: int, refs: list[NodeRef]) -> Graph:
        edges: list[int] = []
        dependencies = [0] * len(refs)
        for ref in refs:
            for output, edge in enumerate(ref.next_edges):
                if edge is not None:
                    consumer = edge[0].index
                    dependencies[consumer] += 1
                    edges += ref.index, output, consumer, edge[1]
        nodes: list[int | str | None] = []
        for ref in refs:
            name, number, parameter, module = self._naming(ref)
            nodes += (
                ref.index,
                name,
                number,
                ref.topological_nr,
                ref.device,
                ref.num_inputs,
                dependencies[ref.index],
                parameter,
                module,
                _shapes(ref.node),
            )
        return Graph(graph_task, nodes, edges)

    def _naming(self, ref: NodeRef) -> tuple[str, int | None, str, str]:
        """Torch's name, sequence number, parameter name and module path of a node."""
        names = self._names
        if not ref.is_accumulate_grad:
            module = None if names is None else names.module(ref.sequence_nr)
            return ref.name, ref.sequence_nr, "", module or ""
        variable: Tensor | None = getattr(ref.node, "variable", None)
        if names is None or variable is None:
            return ref.name, None, "", ""
        return ref.name, None, names.parameter(variable) or "", ""

    def _run(self) -> None:
        # The connection lives in this frame, so that a forked child neither uses nor closes it.
        try:
            writer = Writer(self.path, self._start_ns)
        except sqlite3.Error as error:
            self._stop(error)
            return
        try:
            self._drain_until_closed(writer)
            writer.build_indexes()
            writer.write_meta({"end_ns": time.monotonic_ns()})
            with contextlib.suppress(TraceError, sqlite3.Error, ValueError, OverflowError):
                shortcuts.store(self.path, writer)  # the file is complete without them
        except Exception as error:  # noqa: BLE001 - whatever happens here, the program goes on
            self._stop(error)
            with contextlib.suppress(sqlite3.Error):
                writer.write_meta({"stopped": str(error)})
        finally:
            with contextlib.suppress(sqlite3.Error):
                writer.close()

    def _drain_until_closed(self, writer: Writer) -> None:
        while True:
            closing = self._closing
            self._drain(writer)
            if closing:
                return
            time.sleep(_SECONDS_AFTER_COMMIT)
            self._wake.wait(_SECONDS_BETWEEN_COMMITS)
            self._wake.clear()

    def _drain(self, writer: Writer) -> None:
        # In this order: what was heard before a flush is in the batch, and so is the graph of
        # every event in it.
        flushes = _taken(self._flushes)
        waiting = self._waiting[:]
        del self._waiting[: len(waiting)]
        beside = _taken(self._beside)
        if waiting or beside:
            writer.write(waiting, beside)
        for written in flushes:
            written.set()

    def _stop(self, error: Exception) -> None:
        self._note = _ignore
        self._waiting.clear()
        self._beside.clear()
        log.warning(
            "%s can't be written any longer (%s): recording has stopped, the program goes on",
            clean(os.fspath(self.path)),
            error,
        )

    def _forked(self) -> None:
        self._note = _ignore
        self._waiting.clear()
        self._beside.clear()
        atexit.unregister(self.close)


def _ignore(waiting: object) -> None:
    pass


def _taken(things: deque[T]) -> list[T]:
    return [things.popleft() for _ in range(len(things))]


def _shapes(node: Any) -> str:
    try:
        return ";".join([str(metadata.shape) for metadata in node._input_metadata])
    except (AttributeError, RuntimeError):
        return ""  # a GraphRoot has none, and torch can't tell that of a nested tensor


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for recorder in _recorders:
        recorder._forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
