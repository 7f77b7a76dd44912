"""Recorder: the instrument that observes what is recorded.

Note [Recording must not be felt]
The engine's threads only put a row at the end of a list, which is atomic. A thread takes rows out
in batches (:mod:`agviz.record.file_thread`), at least three times a second, and commits them; while
a large graph is under way, so often that little waits in memory. What the engine does never depends
on it: where the file can't be written any longer (disk full), one warning is logged and recording
ends, and a child made by ``fork`` records nothing.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import re
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from agviz import __version__
from agviz.errors import TraceError
from agviz.record import roots
from agviz.record.copies import MOST_BYTES, Copier, Room
from agviz.record.elements.largest import LargestElements
from agviz.record.file_thread import FileThread
from agviz.record.files import stack_of
from agviz.record.hook_counts import HookCounts
from agviz.record.live_graphs import LiveGraphs
from agviz.record.modified import modified
from agviz.record.ranks import place
from agviz.record.ranks.black_box import BlackBox
from agviz.record.ranks.rank_observer import RankObserver
from agviz.record.selection import Selection
from agviz.record.stores import EXCEPTION, NONFINITE, OVERDUE, Store, StreamStore
from agviz.record.watchdog import Watchdog
from agviz.record.writer import Graph, Introduction, Parameters, SavedHealth, SideRow
from agviz.traces import codec, module_states, seedings
from agviz.traces.left_out import LeftOut
from agviz.traces.native_calls import NativeCall
from agviz.traces.optimizer_steps import OptimizerStep
from agviz.traces.roots import Roots
from agviz.traces.run_facts import ForwardCalls
from agviz_engine import events
from agviz_engine.emissions import CHECKED
from agviz_engine.errors import comes_from_outside, text_of
from agviz_engine.events import CPU_QUEUE, LEFT_OUT, NO_GRAPH_TASK
from agviz_engine.instruments import Instrument, Live, own_packages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from torch import Tensor

    from agviz.measure.values import SavedValue
    from agviz.record.capture_level import CaptureLevel
    from agviz.record.check_forward import CheckForward
    from agviz.record.elements.keeper import ElementKeeper
    from agviz.record.grad_mode import GradMode
    from agviz.record.isolating import NodeIsolator
    from agviz.record.names import ModuleCalls, Names
    from agviz.record.provenance import Provenance
    from agviz.record.steps.observer import StepObserver
    from agviz.traces.rows import Frame
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.instruments import Journal, Measurer, Registry
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz")
# A pass whose beginning was not written has no end. Not .ranks: collectives are waited for in it.
own_packages.update({__package__, f"{__package__}.elements", f"{__package__}.steps"})

_PYTHON: Final = platform.python_version()
_LARGE_GRAPH: Final = 2_000
"""Nodes."""
_MOST_WAITING: Final = 1_500_000
"""Numbers and texts; a graph task does not begin before the writer has come down to this (some
60 MB)."""
_VALUES_OF_A_NODE: Final = 66
"""That come to wait while it runs, if it has one input and one output: six rows."""
_MOST_BYTES_WAITING: Final = 128 * 1024**2
"""Bytes of copies; a gradient is not copied before the writer has come down to this."""
_SHARE_OF_VALUES: Final = 0.25
"""Fraction of a file of limited size that copies of gradients may take."""
_COUNTS_FROM: Final = 4
"""Passes of a test, before which not everything alive is counted."""
LEAST_BYTES: Final = 1_000_000
"""Smallest limit of a file's size."""


class Recorder(Instrument):
    """Records every event, the graphs and the threads into one file.

    Args:
        path: the file to write; an older trace of this name is replaced.
        store: decides what is written, and when; None: everything, as it happens.
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
        max_bytes: bound of the file; see :mod:`agviz.record.retention`. Where not even what is
            under way has room, the recording ends. None: no limit.
        timeout: write what the threads are doing, and call ``file.when_timed_out``, when a graph
            task has been under way for so many seconds; None: never.
        thinned: which calls of backward somebody chooses to record, in words; empty: all.
        script: what is being run, for the reader; ``sys.argv[0]`` by default.
        argv: its arguments; ``sys.argv[1:]`` by default.
        replace: whether an older trace of this name may be replaced.

    Raises:
        agviz.errors.TraceError: the file can't be written to; nothing was started then.
    """

    journal: Journal
    _outermost = NO_GRAPH_TASK
    """The last outermost graph task that began."""
    _last_begun = NO_GRAPH_TASK
    forward: CheckForward | None = None
    """Where the torch functions come from that the program calls."""
    grad_mode: GradMode | None = None
    """Knows where the program turned gradients off."""
    steps: StepObserver | None = None
    """Knows what optimizers hold, find and leave behind."""
    _left_out: LeftOut | None = None
    """The last calls in a row that were not recorded, on their way to the file."""
    _is_paused = False
    """Whether the last call was one of them."""
    _left_out_step: OptimizerStep | None = None
    """The last step behind such calls: by its number those before it are counted."""
    isolator: NodeIsolator | None = None
    elements: ElementKeeper | None = None
    """Knows which elements are not finite."""
    largest: LargestElements | None = None
    is_gated = False
    """Whether somebody calls :meth:`begin` for each graph task, and lets this observe only those
    it wants."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        store: Store | None = None,
        names: Names | None = None,
        provenance: Provenance | None = None,
        check_forward: bool = False,
        values: CaptureLevel = "none",
        max_values_bytes: int = MOST_BYTES,
        steps: range | None = None,
        nodes: re.Pattern[str] | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
        thinned: str = "",
        script: str | None = None,
        argv: list[str] | None = None,
        replace: bool = True,
    ) -> None:
        if max_bytes is not None:
            if max_bytes < LEAST_BYTES:
                raise TraceError(f"a trace needs at least {LEAST_BYTES:,} bytes; allow it more")
            max_values_bytes = min(max_values_bytes, int(max_bytes * _SHARE_OF_VALUES))
        self.path = path if isinstance(path, Path) else Path(path)
        self.store = StreamStore() if store is None else store
        self._names, self._provenance = names, provenance
        self._selection = Selection(steps, nodes)
        self._introduced: set[int] = set()
        self._raised: set[int] = set()
        """Graph tasks under way of which it is kept where their exception came from."""
        self._was_lost = False
        """Whether a loss was met, or something that a node had saved, that is not finite."""
        self._here = threading.local()
        """The call to torch's own engine that this thread makes."""
        self._start_ns = time.monotonic_ns()
        files = None if provenance is None else provenance.files
        self._watchdog = Watchdog(self._start_ns, timeout, files)
        self._live_graphs = LiveGraphs(
            functools.partial(_stack_of_node, provenance),
            functools.partial(_name_of, names),
            counts_from=_COUNTS_FROM if thinned else 1,
        )
        self._hook_counts = HookCounts()
        self._most_values = max_values_bytes
        self._copier = Copier(max_values_bytes, self.store.make_room) if values == "full" else None
        torch = sys.modules.get("torch")
        facts: dict[str, Any] = {
            "script": sys.argv[0] if script is None else script,
            "argv": sys.argv[1:] if argv is None else argv,
            "pid": os.getpid(),
            "started_unix_ns": time.time_ns(),
            "start_ns": self._start_ns,
            "end_ns": None,
            "python": _PYTHON,
            "torch": "" if torch is None else str(torch.__version__),
            "agviz": __version__,
            "engine": "",
            "choice": ", ".join(filter(None, (self.store.choice, str(self._selection)))),
            "thinned": thinned,
            "check_forward": check_forward,
            "values": values,
            "values_stopped": "",
            "stopped": "",
            "ended": "",
            "rank": place.facts(),
            "end_unix_ns": None,
        }
        self.file = FileThread(
            self.path,
            facts,
            self._watchdog,
            copier=self._copier,
            max_bytes=max_bytes,
            replace=replace,
        )
        self.file.early = self._forward_so_far
        self.file.when_overdue = lambda: self.store.occasion(OVERDUE)
        self.file.when_refusing = self._refuse
        self.store.bind(self.file)
        self.ranks: RankObserver | None = None
        """Observes what this process does with the others of its program."""
        if names is not None and provenance is not None:
            self.ranks = RankObserver(
                names,
                provenance,
                self._start_ns,
                self.store.side,
                self.file.note,
                lambda: (self._last_begun, len(self.file.journal)),
            )
            self.ranks.when_at_work = self._keep_last_moment
            self.file.when_drained = self.ranks.look
        is_all = self._selection.has_everything
        self.journal = self.store.rows if is_all else self._note
        if values != "none":
            self.health_journal = self.store.numbers if is_all else self._note_numbers
            self.saved_measured = self._note_saved
            self.measurer = _measuring
        if values == "full":
            self.gradient_measured = self._note_copy
        self.store.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left and complete the file; a second call has no effect."""
        self._keep_left_out()
        if self.steps is not None and self.is_recording:
            self._keep(self.steps.look())
            if averages := self.steps.averages():
                self.file.note("averages_without_statistics", averages)
            if states := self.steps.states():
                self.file.note(module_states.FACT, states)
            if seeds := self.steps.seedings():
                self.file.note(seedings.FACT, seeds)
        if self.ranks is not None:
            self.ranks.stop()
        self.store.flush()
        self.file.close()

    def discard(self) -> None:
        """Let go of what refers to this: see :meth:`FileThread.unbind`."""
        self.file.unbind()
        self.ranks = None
        for name in ("saved_measured", "gradient_measured"):
            vars(self).pop(name, None)

    def _refuse(self) -> None:
        """Keep nothing of what is observed from now on."""
        self.journal = _ignore
        if self.health_journal is not None:
            self.health_journal = _ignore
        if self.registry is not None:
            self.registry.reindex()
        self.store.forget()

    def _keep_last_moment(self) -> None:
        """Have what happens outlive the process, now that it is one of several."""
        if self.ranks is None or not self.is_recording or self.store.choice:
            return
        with contextlib.suppress(OSError):  # where it can't be made, nothing outlives the process
            self.ranks.box = BlackBox(self.path)
            self.journal = self.ranks.box.journal(self.journal)
            if self.registry is not None:
                self.registry.reindex()

    def isolate(self, wanted: str) -> None:
        """Keep what it takes to run nodes alone; torch is there.

        Args:
            wanted: ``nonfinite``, or a regular expression that is found in the name, parameter or
                module of a node.
        """
        from agviz.record.isolating import NodeIsolator

        pattern = None if wanted == NONFINITE else re.compile(wanted)
        room = Room(self._most_values)
        self.isolator = NodeIsolator(pattern, room, self.store.side)

    def keep_largest(self, wanted: re.Pattern[str]) -> None:
        """Keep where the largest elements of gradients come from; torch is there.

        Args:
            wanted: found in the name, parameter or module of a node whose outputs are meant.
        """
        if self.elements is not None:
            self.largest = LargestElements(wanted, self.elements)
            self.gradient_measured = self._note_largest

    def runs_on(self, engine: str) -> None:
        """Note which engine is observed: ``exact`` or ``native``."""
        self.file.note("engine", engine)
        torch = sys.modules.get("torch")  # agviz run records before the program imports it
        if torch is not None:
            self.file.note("torch", str(torch.__version__))

    @property
    def is_recording(self) -> bool:
        """False once it was closed, or had to stop."""
        return self.file.is_recording

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything observed so far can be read from the file.

        Returns:
            False where that took more than ``timeout`` seconds or recording has stopped.
        """
        self._keep_left_out()
        self.store.flush()
        return self.file.flush(timeout)

    def dump(self, reason: str) -> None:
        """Have the file get soon what all threads are doing."""
        if self._left_out is not None:
            from agviz_engine import left_out

            if left_out.is_under_way():
                self._emit_left_out("under way")
        self.file.dump(reason)

    def ended_with(self, error: BaseException) -> None:
        """Note what ended the program, or the block that is recorded, before the file is closed."""
        if self.is_recording:
            self.file.ended = f"{type(error).__name__}: {text_of(error)}".removesuffix(": ")
            self.store.side(self._watchdog.raised(NO_GRAPH_TASK, error))
        self.store.occasion(EXCEPTION)

    def lost(self, error: Exception) -> None:
        """Complete the file: what happens from now on is not observed."""
        why = f"{type(error).__name__}: {text_of(error)}".removesuffix(": ")
        self.file.end_early(f"agviz failed to observe on ({why})")

    def hold(self, thread: int, graph_task: int, node: int, reason: str) -> None:
        """A debugger has stopped a thread: until :meth:`let_go`, nothing hangs.

        Args:
            thread: which is stopped.
            graph_task: of the event behind which it stopped, -1: none.
            node: the same.
            reason: why it stopped there.
        """
        held = self._watchdog.holding.hold(thread, graph_task, node, reason)
        if self.is_recording:
            self.store.side(held)

    def let_go(self, thread: int) -> None:
        """It runs on."""
        gone = self._watchdog.holding.let_go(thread)
        if gone is not None and self.is_recording:
            self.store.side(gone)

    def any_event(self, event: events.Event, live: Live) -> None:  # noqa: ARG002
        """Keep an event; the registry calls this directly for every kind not named below."""
        self.journal(codec.row_of(event))

    def graph_task_begun(self, event: events.GraphTaskBegun, live: Live) -> None:  # noqa: ARG002
        """Take it down, unless somebody else decides what is observed."""
        if not self.is_gated:
            self.begin(event)

    def wants(self, graph_task: int) -> bool:
        """Whether the events of a graph task that has begun are kept."""
        return self.is_recording and self._selection.has(graph_task)

    @property
    def is_alone(self) -> bool:
        """Whether it records, and nobody else observes the engine."""
        registry = self.registry
        return self.is_recording and registry is not None and registry.instruments == (self,)

    def leave_out(self, graph_task: int) -> None:
        """A call of backward begins that is not recorded.

        Args:
            graph_task: the id that it would have.
        """
        self._outermost = self._last_begun = graph_task
        first, passes = (graph_task, 0) if self._left_out is None else self._left_out[::2]
        self._left_out = LeftOut(first, graph_task, passes + 1, 0)
        self._watchdog.moved = True
        self.store.skip(graph_task)
        if self._names is not None:
            self._names.take_calls()
        if not passes:
            self._pause(is_paused=True)

    def goes_on(self) -> None:
        """The next call of backward is recorded."""
        if self._is_paused:
            self._keep_left_out()
            self._pause(is_paused=False)

    def _pause(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused
        if self.steps is not None:
            self.steps.is_paused = is_paused
        if self.grad_mode is not None:
            self.grad_mode.is_paused = is_paused

    def was_not_finite(self, parameter: Tensor) -> None:
        """Keep that a pass that was left out gave a parameter a gradient that is not finite."""
        name = self._names.parameter(parameter) if self._names is not None else None
        self._emit_left_out(f"NaN or infinities in the gradient of {name or 'a parameter'}")

    def _emit_left_out(self, what: str) -> None:
        from agviz_engine.emit import Emitter

        if self.registry is not None:
            Emitter(self.registry).delegated(f"{LEFT_OUT}: {what}")

    def _keep_left_out(self) -> None:
        left_out, self._left_out = self._left_out, None
        step, self._left_out_step = self._left_out_step, None
        if left_out is not None and self.is_recording:
            self.store.side(left_out)
        if step is not None and self.is_recording:
            self._keep_step(step)

    def stepped(
        self, number: int, optimizer: Any, *, is_guarded: bool, begin_ns: int | None, thread: int
    ) -> None:
        """Take down that an optimizer stepped: see :class:`OptimizerStepRow`."""
        import torch

        if self.is_recording:
            since_ns = time.monotonic_ns() - self._start_ns
            begun = None if begin_ns is None else begin_ns - self._start_ns
            name = type(optimizer).__name__
            made = torch._C._autograd._get_sequence_nr()
            times = since_ns, None if begun is None or begun < 0 else begun
            step = OptimizerStep(self._outermost, number, *times, thread, name, is_guarded, made)
            if self._is_paused:
                self._left_out_step = step
                if self.steps is not None:
                    self.steps.stepped_unseen(optimizer, number)
                return
            self._keep_step(step)
            if self.steps is not None:
                self._keep(self.steps.stepped(optimizer, number, self._outermost))
            if self.ranks is not None:
                self.ranks.stepped(number, optimizer)

    def _keep_step(self, step: OptimizerStep) -> None:
        self._introduce(step.thread)
        self._live_graphs.steps += 1
        self.store.side(step)

    def _keep(self, rows: Sequence[SideRow]) -> None:
        for row in rows:
            self.store.side(row)

    def _introduce(self, number: int) -> None:
        """Name the thread that runs this, where it has not been."""
        if number not in self._introduced and self.is_recording:
            self._introduced.add(number)
            thread = threading.current_thread()
            self.store.side(Introduction(number, thread.name, CPU_QUEUE, thread.native_id or 0))

    def begin(self, event: events.GraphTaskBegun) -> None:
        """Decide whether this graph task is recorded; wait where the writer lags far behind."""
        calls = self._begun_within(event)
        self._selection.begin(event)
        self._last_begun = event.graph_task
        if self.ranks is not None:
            self.ranks.begun(event.graph_task, event.parent)
        if self.wants(event.graph_task):
            self.store.begin(event)
            self._watchdog.under_way[event.graph_task] = event.time_ns
            if calls is not None and calls.times_ns:
                self.store.side(ForwardCalls(event.graph_task, calls, self._start_ns))
        if self._provenance is not None:
            self._provenance.renew()
            site = self._provenance.call_site(event.graph_task)
            if site is not None and event.graph_task in self._watchdog.under_way:
                self.store.side(site)
        if event.parent < 0:
            self._introduce(event.thread)
        self.journal(codec.row_of(event))
        self._keep_forward(event.graph_task)
        if len(self.file.journal) > _MOST_WAITING:
            self.flush()

    def _begun_within(self, event: events.GraphTaskBegun) -> ModuleCalls | None:
        """Note what a graph task began in; the forward before it, where it is an outermost one."""
        if event.parent >= 0:
            if self.isolator is not None:
                self.isolator.nested()
            return None
        self._outermost = event.graph_task
        if self.steps is not None:
            self.steps.pass_begun()
        if self.elements is not None:
            self.elements.begun()
        return None if self._names is None else self._names.take_calls()

    def dependencies_computed(self, event: events.DependenciesComputed, live: Live) -> None:
        """Keep the graph as well, while its nodes are alive."""
        if live.graph_task is not None and self.wants(event.graph_task):
            if event.graph_task == self._outermost:
                self._look_for_growth(live.graph_task)
            graph = self._graph(live.graph_task)
            self.store.side(graph)
            if event.nodes > _LARGE_GRAPH:
                self.file.large.add(event.graph_task)
                if len(self.file.journal) + event.nodes * _VALUES_OF_A_NODE > _MOST_WAITING:
                    self.store.flush()  # a store that keeps all in memory has no room for it
                self.file.wake()
            if self._provenance is not None:
                refs = live.graph_task.nodes
                self.store.side(self._provenance.of(event.graph_task, refs))
            is_measured = self.health_journal is not None
            if is_measured:
                self._keep_roots(live.graph_task)
            known = None
            if self._names is not None:
                known = self._names.parameters(with_norms=is_measured)
            if known is not None:
                self.store.side(Parameters(event.graph_task, known))
            if self.ranks is not None:
                self.ranks.computed(live.graph_task, graph)
            self._keep_reached(live.graph_task, graph)
        # Last: a file that ends with this event holds the graph.
        self.journal(codec.row_of(event))

    def _keep_reached(self, task: GraphTask, graph: Graph) -> None:
        """Keep to which leaves a pass leads that no optimizer holds."""
        if self.steps is None or not self.steps.has_stepped or not task.accumulate_grad:
            return
        leaves = [
            (ref.index, variable)
            for ref in task.nodes
            if ref.is_accumulate_grad
            and (variable := getattr(ref.node, "variable", None)) is not None
        ]
        self._keep(self.steps.reached(task.id, leaves, graph.parameters))

    def node_failed(self, event: events.NodeFailed, live: Live) -> None:
        """Find where the exception comes from, and what had been modified, where that is why."""
        self.journal(codec.row_of(event))
        self._keep_raised(event.graph_task)
        ref = live.node
        if ref is None or event.graph_task not in self._watchdog.under_way:
            return
        try:
            found = modified(
                event.graph_task,
                ref,
                event.message,
                parameter=self._owner,
                memory=self._memory,
            )
        except Exception as error:
            if comes_from_outside(error):
                raise
            log.warning("which saved tensor was modified is not recorded (%r)", error)
            return
        if found is not None:
            self.store.side(found)

    def graph_task_finished(self, event: events.GraphTaskFinished, live: Live) -> None:  # noqa: ARG002
        """Have the file get it soon."""
        self.journal(codec.row_of(event))
        self._end(event.graph_task, has_failed=False)

    def graph_task_failed(self, event: events.GraphTaskFailed, live: Live) -> None:  # noqa: ARG002
        """Have the file get it soon, with where the exception comes from."""
        self.journal(codec.row_of(event))
        if event.error == events.GONE_BACK:
            self._selection.went_back(event)
        else:
            self._keep_raised(event.graph_task)
        self._end(event.graph_task, has_failed=True)

    def _end(self, graph_task: int, *, has_failed: bool) -> None:
        if self.steps is not None and graph_task == self._outermost:
            self.steps.pass_ended()
        self._keep_forward(graph_task)
        self._watchdog.under_way.pop(graph_task, None)
        self._raised.discard(graph_task)
        self.file.large.discard(graph_task)
        self._selection.end(graph_task)
        for each in (self.isolator, self.largest):
            if each is not None:
                each.ended(graph_task)
        if self.ranks is not None:
            self.ranks.ended(graph_task)
        self.store.end(graph_task, has_failed=has_failed)
        self.file.wake()

    def delegated(self, event: events.Delegated, live: Live) -> None:  # noqa: ARG002
        """Keep that a call went to torch's own engine, of which nothing else is known."""
        self.journal(codec.row_of(event))
        self._here.delegated = event
        self.store.side(self._native_call(event, None))

    def delegated_failed(self, event: events.DelegatedFailed, live: Live) -> None:  # noqa: ARG002
        """Keep why torch's own engine raised, where it was called, and where gradients were off."""
        self.journal(codec.row_of(event))
        began = getattr(self._here, "delegated", None)
        if began is not None:
            self.store.side(self._native_call(began, event))
        self.store.occasion(EXCEPTION)
        self.file.wake()

    def _native_call(
        self, began: events.Delegated, failed: events.DelegatedFailed | None
    ) -> NativeCall:
        import torch

        grad_enabled = torch.is_grad_enabled()
        stack: tuple[Frame, ...] = ()
        disabled: tuple[Frame, ...] = ()
        if failed is not None:
            files = self._watchdog.files
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
        if graph_task in self._watchdog.under_way:
            self._raised.add(graph_task)
            self.store.side(self._watchdog.raised(graph_task, error))

    def _keep_roots(self, task: GraphTask) -> None:
        """Keep what was measured of what is differentiated, and what made it non-finite."""
        measured = roots.measured(task)
        if not measured:
            return
        self.store.side(Roots(task.id, measured))
        if any(not health.is_finite for _, health in measured):
            if self.steps is not None:
                self._keep(self.steps.look(task.id))
            self._keep_saved_from(task.id, [ref for ref, _ in task.root_edges])

    def _keep_saved_from(self, graph_task: int, begin: Sequence[NodeRef]) -> None:
        """Keep what nodes had saved from some on; the first time, of all there are."""
        most = roots.MOST_LATER if self._was_lost else roots.MOST_FIRST
        self._was_lost = True
        for ref, saved in roots.saved_near(begin, most):
            self._keep_saved(graph_task, ref.index, saved, "root_saved")

    def _note(self, rows: Sequence[Any]) -> None:
        """Keep rows as far as they are chosen."""
        self._watchdog.moved = True
        if wanted := self._selection.rows(rows):
            self.store.rows(wanted)
        elif rows[codec.KIND_COLUMN] == CHECKED and any(rows[codec.NONFINITE_COLUMNS]):
            self.store.occasion(NONFINITE, rows[codec.GRAPH_TASK_COLUMN])

    def _note_numbers(self, numbers: Sequence[Any]) -> None:
        """Keep what was measured for rows that this thread has just noted, as far as chosen."""
        if wanted := self._selection.numbers(numbers):
            self.store.numbers(wanted)

    def _graph(self, task: GraphTask) -> Graph:
        nodes = task.nodes
        edges: list[int] = []
        for ref in nodes:
            for output, edge in enumerate(ref.next_edges):
                if edge is not None:
                    edges += ref.index, output, edge[0].index, edge[1]
        names, sequence_nrs, topological_nrs, shapes, counts = nodes[-1].columns(nodes)
        parameters, modules = self._parameters(nodes), _no_modules
        if self._names is not None:
            modules = self._names.modules(sequence_nrs)
        recorded = self._selection.choose(task.id, names, parameters, modules)
        for each in (self.isolator, self.largest):
            if each is not None:
                each.begun(task.id, names, parameters, modules)
        facts = (
            range(len(nodes)),
            names,
            sequence_nrs,
            topological_nrs,
            [ref.device for ref in nodes] if task.threaded else [CPU_QUEUE],
            counts,
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
                self.store.side(called)

    def _forward_so_far(self) -> list[SideRow]:
        """What was called since then: it is in the file even if no graph task ever begins."""
        if not (self.forward and self._selection.has_all_steps and self.store.has_calls_between):
            return []
        called = self.forward.taken(NO_GRAPH_TASK)
        return [called] if called.ops else []

    def _note_saved(self, event: events.NonFiniteChecked, live: Live) -> None:
        if not self.is_recording or not self._selection.has_row(codec.row_of(event)):
            return
        self._keep_saved(event.graph_task, event.node, live.saved)
        is_lost = any(value.health and not value.health.is_finite for value in live.saved)
        if is_lost and not self._was_lost and live.node is not None:
            self._keep_saved_from(event.graph_task, [live.node])
        if self.elements is not None and live.node is not None:
            located = self.elements.of_node(event.graph_task, live.node, live.outputs)
            if located is not None:
                self.store.side(located)

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
        self.store.side(SavedHealth(graph_task, node, values, table))

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

    def _look_for_growth(self, task: GraphTask) -> None:
        """Keep, now and then, what must not become more with every pass."""
        alive = self._live_graphs.begin(task) if task.accumulate_grad else None
        if alive is not None:
            self.store.side(alive)
        if self._names is not None:
            hooks = self._hook_counts.begin(task.id, self._names)
            if hooks is not None:
                self.store.side(hooks)

    def _memory(self, tensor: Tensor) -> int:
        """Number of its storage among those of torch functions; -1: none, or none is known."""
        return -1 if self.forward is None else self.forward.memory(tensor)

    def _note_largest(self, event: events.Event, live: Live) -> None:
        """Keep where the largest element of a gradient is."""
        if self._copier is not None:
            self._note_copy(event, live)
        if self.largest is None or not isinstance(event, events.NonFiniteChecked):
            return
        if live.gradient is None or live.node is None or not self.is_recording:
            return
        found = self.largest.put_out(event.graph_task, live.node, event.output, live.gradient)
        if found is not None:
            self.store.side(found)

    def _note_copy(self, event: events.Event, live: Live) -> None:
        """Copy a gradient that was measured."""
        copier, gradient = self._copier, live.gradient
        if copier is None or gradient is None or copier.is_full or not self.is_recording:
            return
        row = codec.with_object(codec.COPIED, event, None)
        if isinstance(event, events.GradientAccumulated) and event.producer >= 0:
            row = event.seq - 1, *row[1:]  # that of the emission
        if not self._selection.has_row(row):
            return
        copy = copier.copy(gradient, event.graph_task)
        if copy is None:
            return
        self.store.rows(codec.with_copy(row, copy))
        if self.store.make_room is None and copier.room.waiting > _MOST_BYTES_WAITING:
            self.flush()

    def _parameters(self, nodes: Sequence[NodeRef]) -> list[str]:
        """Parameter name of each node; only one where it is the same for all."""
        found: dict[int, str] = {}
        if self._names is not None:
            for ref in [ref for ref in nodes if ref.is_accumulate_grad]:
                variable = getattr(ref.node, "variable", None)
                name = None if variable is None else self._names.trained(variable)
                if name:
                    found[ref.index] = name
        return [found.get(index, "") for index in range(len(nodes))] if found else [""]


def _name_of(names: Names | None, parameter: Tensor) -> str | None:
    return None if names is None else names.parameter(parameter)


def _stack_of_node(provenance: Provenance | None, node: Any) -> tuple[Frame, ...]:
    """Where a node was made, outermost frame first; empty where that is not known."""
    if provenance is None:
        return ()
    return provenance.resolve([provenance.captured(node)])[0]


def _no_modules() -> list[str]:
    return [""]


def _measuring(registry: Registry) -> Measurer:
    from agviz.measure.measuring import Measuring

    return Measuring(registry)


def _ignore(rows: Sequence[Any]) -> None:
    """Take the place of what keeps rows."""
