"""Recorder: the instrument that writes everything it hears to a trace file.

Note [Recording must not be felt]
The engine's threads only put an event at the end of a list, which is atomic. A thread of the
recorder takes the events out in batches, at least three times a second, and commits them; while a
large graph is under way, so often that little waits in memory. What the
engine does never depends on it: where the file can't be written any longer (disk full), one
warning is logged and recording ends, and a child made by ``fork`` records nothing.

Note [No fork while a file is written]
SQLite has locks for the whole process. A child made while another thread holds one finds it held
for ever, and would wait for it when it opens a file of its own. So ``fork`` waits until no recorder
is writing, for some seconds at most.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import platform
import sqlite3
import sys
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agviz import __version__
from agviz.errors import TraceError
from agviz.measure.values import NUMBERS
from agviz.traces import codec, roots, shortcuts
from agviz.traces.closable import Closable
from agviz.traces.copies import MOST_BYTES, Copier
from agviz.traces.dumping import TIMEOUT, Lookout, stack_of
from agviz.traces.forward_ops import ForwardOps
from agviz.traces.modified import modified
from agviz.traces.native_calls import NativeCall
from agviz.traces.new_file import alone_in, create, remove
from agviz.traces.optimizer_steps import OptimizerStep
from agviz.traces.roots import Roots
from agviz.traces.waiting import Waiting
from agviz.traces.writer import (
    PAGE_BYTES,
    PAGE_BYTES_FOR_VALUES,
    Beside,
    Graph,
    Introduction,
    Origins,
    Parameters,
    SavedHealth,
    Writer,
)
from agviz.words.safe import clean
from agviz_engine import events
from agviz_engine.errors import text_of
from agviz_engine.events import CPU_QUEUE, NO_GRAPH_TASK
from agviz_engine.instruments import Instrument, Journal, Live

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence
    from os import PathLike

    from torch import Tensor

    from agviz.measure.values import SavedValue
    from agviz.traces.check_forward import CheckForward
    from agviz.traces.copies import Copy
    from agviz.traces.grad_mode import GradMode
    from agviz.traces.measured import Values
    from agviz.traces.names import Names
    from agviz.traces.provenance import Provenance
    from agviz.traces.rows import Frame
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.instruments import Measurer, Registry
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz")

_SECONDS_BETWEEN_COMMITS: Final = 0.25
_SECONDS_AFTER_COMMIT: Final = 0.05
_SECONDS_IN_LARGE_GRAPH: Final = 0.01
"""Between commits; the events of a large graph take up more memory than the graph."""
_LARGE_GRAPH: Final = 2_000
"""Nodes."""
_SECONDS_BEFORE_FORK: Final = 10.0
_MOST_WAITING: Final = 1_500_000
"""Numbers and texts; a graph task does not begin before the writer has come down to this (some
60 MB)."""
_BYTES_PER_VALUE: Final = 4
"""In the file, about."""
_SHARE_OF_VALUES: Final = 0.25
"""The same, what copies of gradients may take of it."""
_MOST_BYTES_WAITING: Final = 128 * 1024**2
"""Of copies; a gradient is not copied before the writer has come down to this."""
_BYTES_PER_BATCH: Final = 16 * 1024**2
"""Of copies that are committed together: the WAL holds as much."""
_LEAST_FOR_LARGE_PAGES: Final = 100_000_000
"""Limit of a file's size: each table takes up a page at least."""
LEAST_BYTES: Final = 1_000_000
"""Smallest limit of a file's size."""

T = TypeVar("T")


class Recorder(Instrument, Closable):
    """Records every event, the graphs and the threads into one file.

    Args:
        path: the file to write; an older trace of this name is replaced.
        names: where parameter names and module paths come from.
        provenance: where the stacks that created nodes, and what nodes saved, come from.
        check_forward: whether the torch functions are recorded that the program calls, from
            :attr:`forward`.
        values: how much of gradients to record; ``health`` has the engine measure each, ``full``
            copies each as well. Note [Values are bounded].
        max_values_bytes: the bound of all copies.
        steps: which calls of backward to record, counted from 0 without reentrant ones; None: all.
        nodes: keep only the events of nodes in whose name, parameter or module this is found, and
            of the gradients they hand on; None: of all. Graphs are kept whole.
        max_bytes: bound of the file; see :mod:`agviz.traces.retention`. Where not even what is
            under way has room, the recording ends. None: no limit.
        timeout: write what the threads are doing, and call ``when_timed_out``, when a graph task
            has been under way for so many seconds; None: never.
        script: what is being run, for the reader; ``sys.argv[0]`` by default.
        argv: its arguments; ``sys.argv[1:]`` by default.
        replace: whether an older trace of this name may be replaced.

    Raises:
        agviz.errors.TraceError: the file can't be written to; nothing was started then.
    """

    has_replaced = False
    """Whether there was an older trace of this name."""
    _outermost = NO_GRAPH_TASK
    """The last outermost graph task that began."""
    now_and_then: Callable[[], None] | None = None
    """Called on the writer's thread some times a second. It must not raise."""

    def __init__(  # noqa: PLR0915 - what it holds, one by one
        self,
        path: str | PathLike[str],
        *,
        names: Names | None = None,
        provenance: Provenance | None = None,
        check_forward: bool = False,
        values: Values = "none",
        max_values_bytes: int = MOST_BYTES,
        steps: range | None = None,
        nodes: re.Pattern[str] | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
        script: str | None = None,
        argv: list[str] | None = None,
        replace: bool = True,
    ) -> None:
        if max_bytes is not None and max_bytes < LEAST_BYTES:
            raise TraceError(f"a trace needs at least {LEAST_BYTES:,} bytes; allow it more")
        self.path, self._replace, self._max_bytes = Path(path), replace, max_bytes
        self._opened: Future[None] = Future()
        """Whether the writer's thread could open the file, as soon as that is known."""
        self._names, self._provenance = names, provenance
        self.forward: CheckForward | None = None
        """Where the torch functions come from that the program calls."""
        self._steps = steps
        self._next_step = itertools.count().__next__
        self._wanted = {NO_GRAPH_TASK}
        self._nodes = nodes
        self._chosen: dict[int, set[int]] = {}
        """Nodes whose events are kept, by graph task under way."""
        self._large: set[int] = set()
        """Graph tasks under way that have many nodes."""
        self.is_gated = False
        """Whether somebody calls :meth:`begin` for each graph task, and lets this listen only to
        those it wants."""
        self.when_stopped: Callable[[], None] | None = None
        """Called on the writer's thread where recording has to stop."""
        self.when_timed_out: Callable[[], None] | None = None
        """Called on the writer's thread after ``timeout``, when all is in the file."""
        if max_bytes is not None:
            max_values_bytes = min(max_values_bytes, int(max_bytes * _SHARE_OF_VALUES))
        self.grad_mode: GradMode | None = None
        """Knows where the program turned gradients off."""
        self._last_begun = NO_GRAPH_TASK
        self._raised: set[int] = set()
        """Graph tasks under way of which it is kept where their exception came from."""
        self._writes_forward_early = steps is None
        self._copier = self._make_copier(max_values_bytes) if values == "full" else None
        self.gradient_measured = None if values != "full" else self._note_copy
        self.measurer = None if values == "none" else _measuring
        self.saved_measured = None if values == "none" else self._note_saved
        self._introduced: set[int] = set()
        self._waiting = Waiting()
        self._beside: deque[Beside] = deque()
        self._flushes: deque[threading.Event] = deque()
        self._is_choosing = steps is not None or nodes is not None
        self._here = threading.local()
        """What this thread noted last: the ``seqs`` of the events that were kept."""
        self.journal, health_journal = self._journals()
        self.health_journal = None if values == "none" else health_journal
        self._start_ns = time.monotonic_ns()
        self._lookout = Lookout(
            self._start_ns, timeout, None if provenance is None else provenance.files
        )
        torch = sys.modules.get("torch")
        self._facts: dict[str, Any] = {
            "script": sys.argv[0] if script is None else script,
            "argv": sys.argv[1:] if argv is None else argv,
            "pid": os.getpid(),
            "started_unix_ns": time.time_ns(),
            "start_ns": self._start_ns,
            "end_ns": None,
            "python": platform.python_version(),
            "torch": "" if torch is None else str(torch.__version__),
            "agviz": __version__,
            "choice": self._choice(),
            "check_forward": check_forward,
            "values": values,
            "values_stopped": "",
            "stopped": "",
            "ended": "",
        }
        self._closing, self._writing = threading.Event(), threading.RLock()
        self._values_stopped = ""
        """Why gradients are no longer copied; the writer notes it in the file and clears it."""
        self._stopped = ""
        """Why the recording has come to a regular end before it was closed."""
        self._wake = threading.Event()
        self._ended = ""
        """The exception that ended what is recorded; empty: none did."""
        self._thread = threading.Thread(target=self._run, name="agviz-recorder", daemon=True)
        _recorders.add(self)
        self._begin_writing()

    def _journals(self) -> tuple[Journal, Journal]:
        """What keeps the rows of events, and those of what was measured."""
        if self._is_choosing:
            return self._note, self._note_numbers
        return self._waiting.events.extend, self._waiting.numbers.extend

    def _begin_writing(self) -> None:
        self._open_file()

    def _open_file(self) -> None:
        """Make the file, and have the writer's thread open it; raises TraceError."""
        is_small = self._max_bytes is not None and self._max_bytes < _LEAST_FOR_LARGE_PAGES
        page_bytes = PAGE_BYTES if self._copier is None or is_small else PAGE_BYTES_FOR_VALUES
        with alone_in(self.path.parent):
            with self._writing:
                self.has_replaced = create(
                    self.path, self._facts, page_bytes=page_bytes, replace=self._replace
                )
            try:
                self._thread.start()
            except RuntimeError as error:  # there are too many, or the interpreter ends
                self._opened.set_exception(error)
            unopened = self._opened.exception()
        if unopened is not None:
            remove(self.path)
            name = clean(os.fspath(self.path))
            raise TraceError(
                f"{name} can't be written ({unopened}); choose another place to record into"
            ) from unopened
        atexit.register(self.close)

    def close(self) -> None:
        """Write what is left and complete the file; a second call has no effect."""
        atexit.unregister(self.close)
        self._closing.set()
        self._wake.set()
        self._thread.join()
        self._refuse()

    def _refuse(self) -> None:
        """Keep nothing of what is heard from now on."""
        self.journal = _ignore
        if self.health_journal is not None:
            self.health_journal = _ignore
        if self.registry is not None:
            self.registry.reindex()
        self._waiting.refuse()

    @property
    def is_recording(self) -> bool:
        """False once it was closed, or had to stop."""
        return not self._waiting.is_refusing

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

    def dump(self, reason: str) -> None:
        """Have the writer write soon what all threads are doing."""
        self._lookout.ask(reason)
        self._wake.set()

    def ended_with(self, error: BaseException) -> None:
        """Note what ended the program, or the block that is recorded, before the file is closed."""
        if self.is_recording:
            self._ended = f"{type(error).__name__}: {text_of(error)}".removesuffix(": ")
            self._keep_beside(self._lookout.raised(NO_GRAPH_TASK, error))

    def hold(self, thread: int, graph_task: int, node: int, reason: str) -> None:
        """A debugger has stopped a thread: until :meth:`let_go`, nothing hangs.

        Args:
            thread: which stands still.
            graph_task: of the event behind which it stands, -1: none.
            node: the same.
            reason: why it stopped there.
        """
        held = self._lookout.holding.hold(thread, graph_task, node, reason)
        if self.is_recording:
            self._keep_beside(held)

    def let_go(self, thread: int) -> None:
        """It runs on."""
        gone = self._lookout.holding.let_go(thread)
        if gone is not None and self.is_recording:
            self._keep_beside(gone)

    def any_event(self, event: events.Event, live: Live) -> None:  # noqa: ARG002
        """Keep an event; the registry calls this directly for every kind not named below."""
        self._note(codec.row_of(event))

    def graph_task_begun(self, event: events.GraphTaskBegun, live: Live) -> None:  # noqa: ARG002
        """Take it down, unless somebody else decides when to listen."""
        if not self.is_gated:
            self.begin(event)

    def wants(self, graph_task: int) -> bool:
        """Whether the events of a graph task that has begun are kept."""
        return self.is_recording and (self._steps is None or graph_task in self._wanted)

    def stepped(self, number: int, optimizer: str, *, is_guarded: bool) -> None:
        """Take down that an optimizer stepped: see :class:`OptimizerStepRow`."""
        if self.is_recording:
            since_ns = time.monotonic_ns() - self._start_ns
            step = OptimizerStep(self._outermost, number, since_ns, optimizer, is_guarded)
            self._keep_beside(step)

    def begin(self, event: events.GraphTaskBegun) -> None:
        """Decide whether this graph task is recorded; wait where the writer lags far behind."""
        if event.parent < 0:
            self._outermost = event.graph_task
        if self._steps is not None:
            self._choose(event, self._steps)
        self._last_begun = event.graph_task
        if self.wants(event.graph_task):
            self._lookout.under_way[event.graph_task] = event.time_ns
        if self._provenance is not None:
            self._provenance.renew()
            site = self._provenance.call_site(event.graph_task)
            if site is not None and event.graph_task in self._lookout.under_way:
                self._keep_beside(site)
        if event.parent < 0 and event.thread not in self._introduced and self.is_recording:
            self._introduced.add(event.thread)
            thread = threading.current_thread()
            self._keep_beside(
                Introduction(event.thread, thread.name, CPU_QUEUE, thread.native_id or 0)
            )
        self._note(codec.row_of(event))
        self._keep_forward(event.graph_task)
        if len(self._waiting) > _MOST_WAITING:
            self.flush()

    def dependencies_computed(self, event: events.DependenciesComputed, live: Live) -> None:
        """Keep the graph as well, while its nodes are alive."""
        self._note(codec.row_of(event))
        wanted = self._steps is None or event.graph_task in self._wanted
        if wanted and live.graph_task is not None and self.is_recording:
            self._keep_beside(self._graph(live.graph_task))
            if event.nodes > _LARGE_GRAPH:
                self._large.add(event.graph_task)
                self._wake.set()
            if self._provenance is not None:
                refs = live.graph_task.nodes
                self._keep_beside(self._provenance.of(event.graph_task, refs))
            is_measured = self.health_journal is not None
            if is_measured:
                self._keep_roots(live.graph_task)
            known = None
            if self._names is not None:
                known = self._names.parameters(with_norms=is_measured)
            if known is not None:
                self._keep_beside(Parameters(event.graph_task, known))

    def node_failed(self, event: events.NodeFailed, live: Live) -> None:
        """Find where the exception comes from, and what had been modified, where that is why."""
        self._note(codec.row_of(event))
        self._keep_raised(event.graph_task)
        ref = live.node
        if ref is None or event.graph_task not in self._lookout.under_way:
            return
        try:
            found = modified(
                event.graph_task,
                ref,
                event.message,
                parameter=self._owner,
                memory=self._memory,
            )
        except Exception as error:  # noqa: BLE001 - whatever happens here, the recording goes on
            log.warning("which saved tensor was modified is not recorded (%r)", error)
            return
        if found is not None:
            self._keep_beside(found)

    def graph_task_finished(self, event: events.GraphTaskFinished, live: Live) -> None:  # noqa: ARG002
        """Have the writer commit soon."""
        self._note(codec.row_of(event))
        self._keep_forward(event.graph_task)
        self._end_of(event.graph_task)

    def graph_task_failed(self, event: events.GraphTaskFailed, live: Live) -> None:  # noqa: ARG002
        """Have the writer commit soon."""
        self._note(codec.row_of(event))
        self._keep_raised(event.graph_task)
        self._keep_forward(event.graph_task)
        self._end_of(event.graph_task)

    def delegated(self, event: events.Delegated, live: Live) -> None:  # noqa: ARG002
        """Keep that a call went to torch's own engine, of which nothing else is known."""
        self._note(codec.row_of(event))
        self._here.delegated = event
        self._keep_beside(self._native_call(event, None))

    def delegated_failed(self, event: events.DelegatedFailed, live: Live) -> None:  # noqa: ARG002
        """Keep why torch's own engine raised, where it was called, and where gradients were off."""
        self._note(codec.row_of(event))
        began = getattr(self._here, "delegated", None)
        if began is not None:
            self._keep_beside(self._native_call(began, event))
        self._wake.set()

    def _native_call(
        self, began: events.Delegated, failed: events.DelegatedFailed | None
    ) -> NativeCall:
        import torch

        grad_enabled = torch.is_grad_enabled()
        stack: tuple[Frame, ...] = ()
        disabled: tuple[Frame, ...] = ()
        if failed is not None:
            files = self._lookout.files
            stack = stack_of(sys._getframe(1), files)
            if self.grad_mode is not None and not grad_enabled:
                disabled = self.grad_mode.disabled_at(files)
        return NativeCall(
            began, failed, self._last_begun, self._start_ns, grad_enabled, stack, disabled
        )

    def _keep_raised(self, graph_task: int) -> None:
        """Keep where the exception comes from that ends a graph task; it is being handled here."""
        error = sys.exception()
        if error is None or graph_task in self._raised:
            return
        if graph_task in self._lookout.under_way:
            self._raised.add(graph_task)
            self._keep_beside(self._lookout.raised(graph_task, error))

    def _keep_roots(self, task: GraphTask) -> None:
        """Keep what was measured of what is differentiated, and what made it non-finite."""
        measured = roots.measured(task)
        if not measured:
            return
        self._keep_beside(Roots(task.id, measured))
        if any(not health.is_finite for _, health in measured):
            for ref, saved in roots.saved_near(task):
                self._keep_saved(task.id, ref.index, saved, "root_saved")

    def _end_of(self, graph_task: int) -> None:
        self._lookout.under_way.pop(graph_task, None)
        self._raised.discard(graph_task)
        self._large.discard(graph_task)
        self._chosen.pop(graph_task, None)
        self._wake.set()

    def _choice(self) -> str:
        """What is recorded, in words; empty for everything."""
        chosen = []
        if self._steps is not None:
            chosen.append(f"only the backward passes {_in_words(self._steps)}")
        if self._nodes is not None:
            chosen.append(f"only the events of nodes that match {self._nodes.pattern!r}")
        return ", ".join(chosen)

    def _choose(self, event: events.GraphTaskBegun, steps: range) -> None:
        parent = event.parent
        if self._next_step() in steps if parent < 0 else parent in self._wanted:
            self._wanted.add(event.graph_task)

    def _note(self, rows: Sequence[Any]) -> None:
        """Keep events of a graph task, as far as they are chosen."""
        if self._is_choosing:
            self._lookout.moved = True
            wanted = [row for row in codec.each(rows) if self._is_wanted(row)]
            self._here.seqs = {row[0] for row in wanted}
            rows = list(itertools.chain.from_iterable(wanted))
        if rows:
            self._keep(rows)

    def _note_numbers(self, numbers: Sequence[Any]) -> None:
        """Keep what was measured for events that this thread has just noted."""
        if self._is_choosing:
            each = (numbers[i : i + NUMBERS] for i in range(0, len(numbers), NUMBERS))
            seqs = getattr(self._here, "seqs", ())
            wanted = [row for row in each if row[0] in seqs]
            numbers = list(itertools.chain.from_iterable(wanted))
        if numbers:
            self._keep_numbers(numbers)

    def _keep(self, rows: Sequence[Any]) -> None:
        self._waiting.keep(rows)

    def _keep_numbers(self, numbers: Sequence[Any]) -> None:
        self._waiting.keep((), numbers)

    def _is_wanted(self, row: Sequence[Any]) -> bool:
        graph_task = row[codec.GRAPH_TASK_COLUMN]
        if self._steps is not None and graph_task not in self._wanted:
            return False
        if self._nodes is not None and (columns := codec.NODES[row[codec.KIND_COLUMN]]):
            chosen = self._chosen.get(graph_task, ())
            return any(row[column] in chosen for column in columns)
        return True

    def _keep_beside(self, thing: Beside) -> None:
        self._beside.append(thing)

    def _graph(self, task: GraphTask) -> Graph:
        nodes = task.nodes
        edges: list[int] = []
        for ref in nodes:
            for output, edge in enumerate(ref.next_edges):
                if edge is not None:
                    edges += ref.index, output, edge[0].index, edge[1]
        names, sequence_nrs, topological_nrs, shapes = nodes[0].columns(nodes)
        parameters, modules = self._parameters(nodes), _no_modules
        if self._names is not None:
            modules = self._names.modules(sequence_nrs)
        recorded = b"\1"
        if self._nodes is not None:
            columns = [c * len(nodes) if len(c) == 1 else c for c in (parameters, modules())]
            texts = zip(names, *columns, strict=True)
            recorded = bytes(any(map(self._nodes.search, of_one)) for of_one in texts)
            chosen = self._chosen.setdefault(task.id, set())
            chosen.update(index for index, is_chosen in enumerate(recorded) if is_chosen)
        facts = (
            range(len(nodes)),
            names,
            sequence_nrs,
            topological_nrs,
            [ref.device for ref in nodes] if task.threaded else [CPU_QUEUE],
            [ref.num_inputs for ref in nodes],
            task.fan_in or task.dependencies[:],
            parameters,
            shapes,
            recorded,
        )
        return Graph(task.id, facts, modules, edges)

    def _keep_forward(self, graph_task: int) -> None:
        """Keep what was called until a graph task began, or in it."""
        if self.forward is not None:
            called = self.forward.taken(graph_task)
            if self.wants(graph_task):
                self._keep_beside(called)

    def _forward_so_far(self) -> list[Beside]:
        """What was called since then: it is in the file even if no graph task ever begins."""
        if self.forward is None or not self._writes_forward_early:
            return []
        called = self.forward.taken(NO_GRAPH_TASK)
        return [called] if called.ops else []

    def _note_saved(self, event: events.NonFiniteChecked, live: Live) -> None:
        if not self.is_recording or not self._is_wanted(codec.row_of(event)):
            return
        self._keep_saved(event.graph_task, event.node, live.saved)

    def _keep_saved(
        self,
        graph_task: int,
        node: int,
        saved: Sequence[SavedValue],
        table: str = "saved_health",
    ) -> None:
        """Keep what a node had saved."""
        values = [
            (name, self._owner(tensor), value, health) for name, tensor, value, health in saved
        ]
        self._keep_beside(SavedHealth(graph_task, node, values, table))

    def _owner(self, tensor: Tensor | None) -> str:
        """Name of the parameter whose elements a tensor has."""
        if tensor is None or self._names is None:
            return ""
        from agviz.measure.health import unseen

        try:
            with unseen():
                return self._names.owner(tensor) or ""
        except RuntimeError:  # one of an exotic kind has no memory that could be asked for
            return ""

    def _memory(self, tensor: Tensor) -> int:
        """Number of its storage among those of torch functions; -1: none, or none is known."""
        return -1 if self.forward is None else self.forward.memory(tensor)

    def _note_copy(self, event: events.Event, live: Live) -> None:
        """Copy a gradient that was measured."""
        copier, gradient = self._copier, live.gradient
        if copier is None or gradient is None or copier.is_full or not self.is_recording:
            return
        row = codec.with_object(codec.COPIED, event, None)
        if isinstance(event, events.GradientAccumulated) and event.producer >= 0:
            row = event.seq, *row[1:]  # TEMP that of the emission
        if not self._is_wanted(row):
            return
        copy = copier.copy(gradient, event.graph_task)
        if copy is None:
            self._values_stopped = f"their bound of {copier.room.most:,} bytes was reached"
            return
        self._keep_copy(copy, codec.with_copy(row, copy))

    def _keep_copy(self, copy: Copy, row: tuple[Any, ...]) -> None:  # noqa: ARG002
        self._keep(row)
        copier = self._copier
        if copier is not None and copier.room.waiting > _MOST_BYTES_WAITING:
            self.flush()

    def _make_copier(self, most: int) -> Copier:
        return Copier(most)

    def _parameters(self, nodes: Sequence[NodeRef]) -> list[str]:
        """Parameter name of each node; only one where it is the same for all."""
        found: dict[int, str] = {}
        if self._names is not None:
            for ref in [ref for ref in nodes if ref.is_accumulate_grad]:
                variable = getattr(ref.node, "variable", None)
                name = None if variable is None else self._names.parameter(variable)
                if name:
                    found[ref.index] = name
        return [found.get(index, "") for index in range(len(nodes))] if found else [""]

    def _run(self) -> None:
        with self._writing:
            self._write()

    def _write(self) -> None:
        # The connection lives in this frame, so that a forked child neither uses nor closes it.
        try:
            writer = Writer(self.path, self._start_ns, self._lookout.source)
        except (sqlite3.Error, OSError) as error:
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        try:
            if self._max_bytes is not None:
                writer.limit(self._max_bytes)
            self._drain_until_closed(writer)
            self._complete(writer)
        except Exception as error:  # noqa: BLE001 - whatever happens here, the program goes on
            self._stop(f"can't be written any longer ({error})")
            with contextlib.suppress(sqlite3.Error):
                writer.write_meta({"stopped": str(error)})
        finally:
            with contextlib.suppress(sqlite3.Error):
                writer.close()

    def _complete(self, writer: Writer) -> None:
        writer.build_indexes()
        facts = {"end_ns": time.monotonic_ns(), "stopped": self._stopped, "ended": self._ended}
        writer.write_meta(facts)
        with contextlib.suppress(TraceError, sqlite3.Error, ValueError, OverflowError):
            shortcuts.store(self.path, writer)  # the file is complete without them

    def _drain_until_closed(self, writer: Writer) -> None:
        while True:
            closing = self._closing.is_set()
            self._drain(writer)
            if closing or self._stopped:
                return
            self._look(writer)
            if self.now_and_then is not None:
                self.now_and_then()
            self._writing.release()
            self._rest()
            self._writing.acquire()

    def _rest(self) -> None:
        """Wait until there is something to be written."""
        if self._large:
            self._closing.wait(_SECONDS_IN_LARGE_GRAPH)
        else:
            self._closing.wait(_SECONDS_AFTER_COMMIT)
            self._wake.wait(_SECONDS_BETWEEN_COMMITS)
            self._wake.clear()

    def _look(self, writer: Writer) -> bool:
        """Write what the threads are doing where nothing moves; whether that was written."""
        reason = self._lookout.due()
        if reason is None or not self._writes_on(reason):
            return False
        self.dump(reason)
        self._drain(writer)
        if reason == TIMEOUT and self.when_timed_out is not None:
            self.when_timed_out()
        return True

    def _writes_on(self, reason: str) -> bool:  # noqa: ARG002
        """Whether what the threads are doing is written for this reason."""
        return True

    def _drain(self, writer: Writer) -> None:
        # In this order: what was heard before a flush is in the batch, and so is the graph of
        # every event in it.
        flushes = _taken(self._flushes)
        counts = self._waiting.counts
        early = self._forward_so_far()
        beside = [*early, *_taken(self._beside)]
        beside += self._lookout.dumps()
        if any(counts):
            self._lookout.moved = True
        if any(counts) or beside:
            self._write_down(writer, beside, counts)
        if self._values_stopped:
            writer.write_meta({"values_stopped": self._values_stopped})
            self._values_stopped = ""
        for written in flushes:
            written.set()

    def _write_down(self, writer: Writer, beside: list[Beside], counts: tuple[int, int]) -> None:
        """Write the first ``counts`` values of what waits, and what belongs to them."""
        most = sys.maxsize if self._max_bytes is None else self._max_bytes
        values = sum(counts) + sum(map(_values, beside))
        is_little = self._copier is None and values <= most // 50 // _BYTES_PER_VALUE
        if is_little and writer.make_room(values * _BYTES_PER_VALUE):
            writer.write(self._waiting, beside, counts)
        else:
            self._write_bounded(writer, self._waiting.taken(), beside, most)

    def _write_bounded(
        self, writer: Writer, waiting: Waiting, beside: list[Beside], most: int
    ) -> None:
        """As `Writer.write`, a little at a time, each graph right before the events of its task.

        A writer that lags may find the graphs of more backward passes than the file has room for.
        """
        nbytes = min(most // 50, _BYTES_PER_BATCH)
        for batch in waiting.batches(most // 50 // _BYTES_PER_VALUE, nbytes):
            told = batch.graph_tasks()
            first = [thing for thing in beside if _is_needed(thing, told)]
            beside = [thing for thing in beside if not _is_needed(thing, told)]
            if not _fit(writer, first) or not writer.make_room(len(batch) * _BYTES_PER_VALUE):
                break
            writer.write(batch, [])
        else:
            if _fit(writer, beside):
                return
        self._stopped = f"the limit of {most:,} bytes was reached"
        self._stop(f"has reached its limit of {most:,} bytes")

    def _stop(self, why: str) -> None:
        self._refuse()
        self._beside.clear()
        self._lookout.under_way.clear()
        self._large.clear()
        log.warning(
            "%s %s: recording has stopped, the program goes on", clean(os.fspath(self.path)), why
        )
        if self.when_stopped is not None:
            self.when_stopped()

    def _forked(self) -> None:
        self._refuse()
        self._beside.clear()
        self._lookout.under_way.clear()
        atexit.unregister(self.close)


def _fit(writer: Writer, beside: list[Beside]) -> bool:
    """Write each for which there is room; whether there was for all."""
    for thing in beside:
        if not writer.make_room(_values(thing) * _BYTES_PER_VALUE):
            return False
        writer.write(Waiting(), [thing])
    return True


def _values(thing: Beside) -> int:
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


def _is_needed(thing: Beside, told: set[int]) -> bool:
    """Whether it has to be in the file before events of the graph tasks ``told``."""
    graph_task = getattr(thing, "graph_task", NO_GRAPH_TASK)
    if isinstance(thing, Introduction) or graph_task in told:
        return True
    return isinstance(thing, ForwardOps) and graph_task == NO_GRAPH_TASK


def _no_modules() -> list[str]:
    return [""]


def _measuring(registry: Registry) -> Measurer:
    from agviz.measure.measuring import Measuring

    return Measuring(registry)


def _ignore(rows: Sequence[Any]) -> None:
    """Take the place of what keeps rows."""


def _taken(things: deque[T]) -> list[T]:
    return [things.popleft() for _ in range(len(things))]


def _in_words(steps: range) -> str:
    last = "" if steps.stop >= sys.maxsize else str(steps.stop)
    every = "" if steps.step == 1 else f", one in {steps.step}"
    return f"{steps.start}:{last}{every}"


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


class _Forking(threading.local):
    """What a thread holds while it forks the process."""

    def __init__(self) -> None:
        self.held = contextlib.ExitStack()


_forking = _Forking()


def _before_fork() -> None:
    """Note [No fork while a file is written]."""
    until = time.monotonic() + _SECONDS_BEFORE_FORK
    for recorder in list(_recorders):
        if recorder._writing.acquire(timeout=max(0.0, until - time.monotonic())):
            _forking.held.callback(recorder._writing.release)


def _after_fork() -> None:
    _forking.held.close()


def _after_fork_in_child() -> None:
    _after_fork()
    for recorder in _recorders:
        recorder._forked()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
