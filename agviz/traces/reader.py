"""Reading a trace: the one way from a ``*.agviz`` file to rows, events and replayed state."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections import Counter
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

from agviz.errors import TraceError
from agviz.traces import (
    codec,
    distributed,
    dumps,
    elements,
    forward,
    health,
    held,
    hook_calls,
    hook_counts,
    isolated,
    last_moment,
    left_out,
    live_graphs,
    native_calls,
    nonfinite,
    optimizer_steps,
    parameters,
    roots,
    run_facts,
    saved_health,
    step_facts,
    timeline,
    values,
    version_errors,
)
from agviz.traces import events as trace_events
from agviz.traces.contents import Contents
from agviz.traces.database import DURING, Database, given, of, place
from agviz.traces.events import ArrivalRow, EventReader
from agviz.traces.intervals import NodeTimes
from agviz.traces.nodes import NodeReader, self_times, short_name
from agviz.traces.outline import Outline
from agviz.traces.rows import (
    DumpRow,
    EdgeRow,
    ExecutionRow,
    ForwardOpRow,
    Frame,
    GraphTaskRow,
    HeldRow,
    HookTime,
    LeafNorm,
    Meta,
    NativeCallRow,
    NodeRow,
    NodeStatus,
    NonFiniteRow,
    OptimizerStepRow,
    ParameterRow,
    RootRow,
    SavedHealthRow,
    SavedRow,
    Slowest,
    ThreadRow,
    ThreadTime,
    TypeTime,
    VersionErrorRow,
    visible,
)
from agviz.traces.schema import OF_EVENT
from agviz.traces.state import BackwardState
from agviz.traces.task_facts import Known, TaskFacts
from agviz.traces.timeline import Bytes, Depth, LiveBytes, Steps, Timeline
from agviz.words.safe import clean
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from os import PathLike

    from torch import Tensor

    from agviz.traces.distributed import (
        Collective,
        Digest,
        Pause,
        ProcessGroup,
        Scheduled,
        Stage,
        Synchronised,
    )
    from agviz.traces.elements import LocatedElements
    from agviz.traces.engine_state import EngineState
    from agviz.traces.events import NodeBegun, Place
    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.health import HealthRow
    from agviz.traces.hook_calls import HookCalls
    from agviz.traces.hook_counts import HookCount
    from agviz.traces.last_moment import LastMoment
    from agviz.traces.left_out import LeftOut
    from agviz.traces.live_graphs import LiveGraphsLook
    from agviz.traces.module_states import StateFact
    from agviz.traces.nodes import EdgeNorm, NodeIdentity, NodeLabel, PlacedNode, Turn
    from agviz.traces.nonfinite import Flows
    from agviz.traces.run_facts import ModuleCall
    from agviz.traces.seedings import SeedFact
    from agviz.traces.step_facts import (
        HeldParameterRow,
        NotFiniteRow,
        OptimizerRow,
        StepFactRow,
        StepSampleRow,
        UnheldRow,
    )
    from agviz.traces.task_facts import PassNorms
    from agviz.traces.values import Part, StoredValues, ValueRow
    from agviz_engine.events import Event

_ALL: Final = 2**63 - 1
_MOST_OPTIMIZERS: Final = 128
"""Made one after the other, as one for each task: rules that hold each against all passes took
minutes of 3,000 in 24,000 passes."""
_TAB: Final = 4


class Trace:
    """A recorded file, finished or still growing. Use :meth:`open`; it is a context manager.

    Everything is read when asked for, so a growing file shows its newest committed state. A trace
    belongs to the thread that opened it. Every method may raise
    :class:`agviz.errors.TraceError` where the file turns out to be damaged, or where it holds no
    graph task or node of the number asked for.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version = database.version()
        self._known_timeline: Timeline | None = None
        self._known_facts: TaskFacts | None = None
        self._known_beginning: Trace | None = None
        self._sources: dict[str, list[str]] = {}
        self._read_anew()

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """Open ``path`` for reading; the file is never written to.

        Raises:
            agviz.errors.TraceError: no such file, a folder, empty, not SQLite, not a trace,
                damaged, or written by a newer agviz.
        """
        trace = cls(Database(path))
        try:
            _ = trace.meta
        except BaseException:
            trace.close()
            raise
        return trace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; a second call has no effect."""
        if self._known_beginning is not None:
            self._known_beginning.close()
        self._database.close()

    def forget(self) -> None:
        """Drop the rows that are kept for the next question; for who goes through a long trace."""
        self._known_timeline = None
        self._read_anew()

    def one_moment(self) -> AbstractContextManager[None]:
        """Read inside what a growing file holds at this moment; only for a short time."""
        return self._database.one_moment()

    @property
    def version(self) -> int:
        """A number that changes whenever the file has grown."""
        return self._database.version()

    @property
    def path(self) -> str:
        """The path that was opened, control characters replaced."""
        return self._database.name

    def damaged(self, what: str) -> TraceError:
        """The error for a file whose contents make no sense."""
        return self._database.damaged(what)

    @property
    def meta(self) -> Meta:
        """What was recorded. ``meta.end_ns is None``: cut off, or still growing."""
        return self._contents().meta

    @property
    def is_growing(self) -> bool:
        """Whether the recording was not closed and a process of its number is alive."""
        return self._contents().is_growing

    @property
    def threads(self) -> list[ThreadRow]:
        """The threads that took part, by id."""
        return list(self._contents().threads)

    @property
    def graph_tasks(self) -> GraphTasks:
        """The graph tasks, by id: in order of creation. A row is made when it is asked for."""
        return self._contents().graph_tasks

    @property
    def task_facts(self) -> TaskFacts:
        """What was measured of each graph task as a whole, in columns beside ``graph_tasks``."""
        contents = self._contents()
        if self._known_facts is None:
            self._known_facts = TaskFacts(self._database, contents)
        return self._known_facts

    @property
    def left_out(self) -> list[LeftOut]:
        """Backward passes that are not in the file: so that it is small, or never recorded.

        Each row is of passes that were called one after another; they come in order.
        """
        return left_out.read(self._database)

    @property
    def beginning(self) -> Trace:
        """The run before the first pass that was left out: all of that is there; else this.

        Before the first step of more optimizers than can be held against each other, too.
        """
        if self._known_beginning is None:
            gone = [each.first for each in self.left_out[:1]]
            if (first := self._first_of_many_optimizers()) is not None:
                gone.append(first)
            if not gone:
                return self
            self._known_beginning = Trace(self._database.earlier(min(gone)))
        return self._known_beginning

    def _first_of_many_optimizers(self) -> int | None:
        """The pass behind which an optimizer took its first step that is one too many.

        None: there are not so many, or they belong together, as one for each parameter.
        """
        known = {one.number for one in self.optimizers()[:_MOST_OPTIMIZERS]}
        if len(known) < _MOST_OPTIMIZERS:
            return None
        rows = self.passes_before_steps()
        steps = (row.step for row in self.step_facts() if row.optimizer not in known)
        first = next((rows[step] for step in steps if step in rows), 0)
        return first if first >= _MOST_OPTIMIZERS else None

    def passes_before(self, graph_task: int) -> int:
        """How many backward passes were recorded before one, left out or not; reentrant ones apart.

        So it is the pass's number, counted from 0. For a number behind the last, all of them.
        """
        kept = bisect_left(self.graph_tasks.outermost.ids, graph_task)
        return kept + sum(each.passes for each in self.left_out if each.first < graph_task)

    def graph_task(self, graph_task: int) -> GraphTaskRow:
        """One graph task. Raises TraceError where the trace has none with this id."""
        found = self._contents().graph_task(graph_task)
        if found is None:
            raise TraceError(f"{self.path} holds no graph task {graph_task}; see its graph_tasks")
        return found

    def nodes(self, graph_task: int) -> Sequence[NodeRow]:
        """The nodes of a graph task: ``nodes(g)[i].index == i``.

        Their columns are read now; each row is made when it is first asked for, which neither
        touches the file nor raises, on whatever thread.
        """
        self.graph_task(graph_task)
        return self._nodes().nodes(graph_task)

    def node(self, graph_task: int, node: int, *, most_outputs: int = _ALL) -> NodeRow:
        """One node. Raises TraceError where the graph task has none of this index.

        Of more than ``most_outputs`` outputs, the shapes of the first will do.
        """
        self.graph_task(graph_task)
        row = self._nodes().node(graph_task, node, most_outputs)
        if row is None:
            raise TraceError(
                f"graph task {graph_task} of {self.path} holds no node {node}; "
                f"it has {len(self.nodes(graph_task))} nodes, counted from 0"
            )
        return row

    def sequence_nrs(self, graph_task: int) -> frozenset[int]:
        """The sequence numbers of the nodes of a graph task; leaves have none."""
        self.graph_task(graph_task)
        return self._nodes().sequence_nrs(graph_task)

    def saved(self, graph_task: int, node: int) -> list[SavedRow]:
        """The tensors that a node had saved for its backward; empty where that is not known."""
        self.graph_task(graph_task)
        return self._contents().saved(graph_task, node)

    def all_saved(self, graph_task: int) -> list[SavedRow]:
        """What all nodes of a graph task saved, in order of nodes."""
        self.graph_task(graph_task)
        return self._contents().saved(graph_task)

    def located(self, graph_task: int, node: int | None = None) -> list[LocatedElements]:
        """Where in their outputs nodes made something non-finite of finite gradients.

        And where the largest elements are of the nodes that ``--elements`` has chosen.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        return elements.read_nodes(self._database, self._contents(), graph_task, node)

    def located_by(self, op: int) -> LocatedElements | None:
        """Where a tensor of a torch function is not finite; None: it is not known.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        return elements.read(self._database, self._contents(), op)

    def saved_health(self, graph_task: int, node: int | None = None) -> list[SavedHealthRow]:
        """What a node had saved that put out a non-finite gradient though all it got were finite.

        Empty for other nodes, and at ``--values none``. ``node=None``: of all nodes, in order.
        """
        self.graph_task(graph_task)
        return saved_health.read(self._database, self._contents(), graph_task, node)

    def root_saved(self, graph_task: int) -> list[SavedHealthRow]:
        """What the nodes nearest to a root had saved where that is not finite."""
        self.graph_task(graph_task)
        return saved_health.read(self._database, self._contents(), graph_task, None, "root_saved")

    def parameters(self, graph_task: int) -> list[ParameterRow]:
        """The parameters whose names were known when the dependencies were computed."""
        self.graph_task(graph_task)
        found = self._nodes().accumulators(graph_task)
        return parameters.read(self._database, self._contents(), graph_task, found)

    def forward_ops(
        self, graph_task: int | None = None, offset: int = 0, limit: int = 100_000
    ) -> list[ForwardOpRow]:
        """The torch functions that the program called, in order; only with ``check_forward``.

        Args:
            graph_task: only those between the last graph task and this one, and those called during
                it; None: all.
            offset: number of those to leave out first.
            limit: at most this many.
        """
        return forward.read(
            self._database,
            self._contents(),
            f"TRUE {of(graph_task)} ORDER BY id LIMIT ? OFFSET ?",
            *given(graph_task),
            max(limit, 0),
            max(offset, 0),
        )

    def last_forward_ops(self, limit: int) -> list[ForwardOpRow]:
        """The last ``limit`` of them in the recording, in order."""
        # More may be written while it is read.
        ((last,),) = self._database.integers("SELECT COALESCE(MAX(id), -1) FROM forward_op")
        return forward.read(
            self._database,
            self._contents(),
            "id > ? AND id <= ? ORDER BY id",
            last - max(limit, 0),
            last,
        )

    def forward_nonfinite(
        self, graph_task: int | None = None, limit: int = 1000
    ) -> list[ForwardOpRow]:
        """Those of them that gave back, or wrote into an argument, NaN or infinities."""
        return forward.read(
            self._database,
            self._contents(),
            f"{forward.NONFINITE} {of(graph_task)} ORDER BY id LIMIT ?",
            *given(graph_task),
            max(limit, 0),
        )

    def gradient_reads(self, limit: int = 1000) -> list[ForwardOpRow]:
        """Those that read ``.grad`` of a tensor that is no leaf, and has none therefore."""
        return forward.read(
            self._database,
            self._contents(),
            f"{forward.GRADIENT_READS} ORDER BY id LIMIT ?",
            max(limit, 0),
        )

    def forward_changes(self, memory: int, after: int) -> list[ForwardOpRow]:
        """Those that gave back, or wrote into, a tensor of this memory after the one called so."""
        return forward.read(
            self._database,
            self._contents(),
            "id > ? AND id IN (SELECT op FROM forward_tensor WHERE memory = ? AND is_output)"
            " ORDER BY id LIMIT 1000",
            *(after, memory),
        )

    def gradient_requests(self) -> list[ForwardOpRow]:
        """Those that set ``requires_grad`` of a tensor, the last 1,000 in order."""
        condition = f"{forward.GRADIENT_REQUESTS} ORDER BY id DESC LIMIT 1000"
        return forward.read(self._database, self._contents(), condition)[::-1]

    def written_onto_themselves(self) -> list[ForwardOpRow]:
        """Those that copy or mix the memory of a tensor into that same memory, the first 1,000."""
        condition = f"{forward.ONTO_ITSELF} ORDER BY id LIMIT 1000"
        return forward.read(self._database, self._contents(), condition)

    def forward_first(self, tensor: int) -> ForwardOpRow | None:
        """The first of them that was given a tensor, or gave it; None: there is none."""
        condition = "id = (SELECT MIN(op) FROM forward_tensor WHERE tensor = ?)"
        found = forward.read(self._database, self._contents(), condition, tensor)
        return found[0] if found else None

    def forward_taking(self, tensor: int) -> list[ForwardOpRow]:
        """Those that were given a tensor, the first 1,000."""
        return forward.read(
            self._database,
            self._contents(),
            "id IN (SELECT op FROM forward_tensor WHERE tensor = ? AND NOT is_output)"
            " ORDER BY id LIMIT 1000",
            tensor,
        )

    def forward_op(self, graph_task: int, node: int) -> ForwardOpRow | None:
        """The torch function that made a node; None: none that is known, or not one for sure."""
        row = self.node(graph_task, node)
        if row.sequence_nr is None:
            return None
        found = forward.read(
            self._database,
            self._contents(),
            "first_nr <= ? AND ? < end_nr ORDER BY id",
            *(row.sequence_nr,) * 2,
        )
        caller = self.graph_task(graph_task).thread
        own = [op for op in found if op.thread == caller] or found
        # A function that called others made what they made.
        narrowest = min((len(op.sequence_nrs) for op in own), default=0)
        own = [op for op in own if len(op.sequence_nrs) == narrowest]
        return own[0] if len(own) == 1 else None

    def forward_giving(self, tensor: int, version: int | None, before: int) -> ForwardOpRow | None:
        """The last torch function before number ``before`` that gave, or else took, a tensor.

        Args:
            tensor: its number, as in :class:`agviz.traces.rows.ForwardTensorRow`.
            version: which of its versions; None for a tensor without one.
            before: number of a torch function.
        """
        found = forward.read(
            self._database,
            self._contents(),
            "id = (SELECT op FROM forward_tensor WHERE tensor = ? AND version IS ? AND op < ?"
            " ORDER BY is_output DESC, op DESC LIMIT 1)",
            *(tensor, cast("int", version), before),
        )
        return found[0] if found else None

    def version_errors(self, graph_task: int) -> list[VersionErrorRow]:
        """What nodes could not use because it had been modified since they saved it."""
        self.graph_task(graph_task)
        return version_errors.read(self._database, self._contents(), graph_task)

    def same_nodes(self, graph_task: int, node: int) -> list[tuple[int, int]]:
        """Other graph tasks that went through what seems the very node, and its index in them.

        A node has its name, its sequence number and its topological number in all of them. Threads
        number theirs independently, so that a node of another thread can have the same.
        """
        return self._nodes().same(self.node(graph_task, node))

    def frames(self) -> list[Frame]:
        """Every frame of every stack that was recorded, in no order."""
        return list(self._contents().stacks.frames)

    def nodes_by_line(self, fits: Callable[[str], bool]) -> dict[int, list[tuple[int, int]]]:
        """The nodes that the forward made on lines of a file: graph task and index, by line.

        A node belongs to the line that made it and to those that called it, as in its stack.

        Args:
            fits: whether a file is the one, by the name that frames have for it.
        """
        return self._nodes().by_line(fits)

    def first_nodes(self) -> list[NodeRow]:
        """The first node of each name in the whole recording, in order of graph tasks."""
        return [self.node(*first) for first in self._nodes().firsts()]

    def call_site(self, graph_task: int) -> tuple[Frame, ...]:
        """The line that called backward or grad, outermost frame first; empty where not known."""
        self.graph_task(graph_task)
        return dumps.call_site(self._database, self._contents(), graph_task)

    def source(self, file: str) -> list[str]:
        """The lines of a file of source as it was when it was recorded; empty: not stored.

        Args:
            file: its name, as :attr:`Frame.file` has it.
        """
        known = self._sources.get(file)
        if known is None:
            text = self._contents().source(file).rstrip("\n")
            known = [clean(line.expandtabs(_TAB)) for line in text.split("\n")] if text else []
            if known:  # else it may come yet
                self._sources[file] = known
        return known

    def native_calls(self) -> list[NativeCallRow]:
        """The calls that were handed to torch's own engine, in order of time."""
        return native_calls.read(self._database, self._contents())

    def roots(self, graph_task: int) -> list[RootRow]:
        """The small tensors that backward or grad was called on; none at ``--values none``."""
        self.graph_task(graph_task)
        return roots.read(self._database, self._contents(), graph_task)

    def nonfinite_roots(self) -> list[int]:
        """The graph tasks of which such a tensor is not finite, in order of ids."""
        return list(self.task_facts.roots)

    def losses(self) -> Mapping[int, float]:
        """The value of the one number that backward was called on, by graph task.

        A call on several tensors, or on one of several elements, has none.
        """
        return Known(self.graph_tasks, self.task_facts.losses.__getitem__)

    def stored_norms(self) -> tuple[PassNorms, dict[int, str]] | None:
        """Norms of all passes, with the names in them; None: they were not stored.

        :class:`agviz.traces.run_norms.RunNorms` reads them, or works them out.
        """
        facts = self.task_facts
        return None if facts.norms is None else (facts.norms, facts.parameters)

    def leaf_norms(self, first: int, before: int) -> list[LeafNorm]:
        """The norms of leaves' gradients, measured in events from ``first`` to ``before``.

        Args:
            first: ``seq`` of an event.
            before: the ``seq`` behind the last one.
        """
        return self._nodes().leaf_norms(first, before)

    def raised(self, graph_task: int) -> DumpRow | None:
        """What the thread was doing that raised; None where that was not recorded.

        Args:
            graph_task: which failed; -1: the program, or the block that was recorded.
        """
        return dumps.raised(self._database, self._contents(), graph_task)

    def optimizer_steps(self, since: int = -1) -> list[OptimizerStepRow]:
        """When optimizers stepped, in order of time; whatever was chosen, all are recorded.

        Args:
            since: those after the beginning of this graph task; -1: all of them.
        """
        return optimizer_steps.read(self._database, self._contents(), since)

    def passes_before_steps(self) -> dict[int, int]:
        """By number of a step: the last outermost graph task that had begun; -1: none."""
        return optimizer_steps.passes_before(self._database)

    def live_graphs(self) -> list[LiveGraphsLook]:
        """How many graphs were alive when some later passes began, in order of time."""
        return live_graphs.read(self._database, self._contents())

    def hook_counts(self) -> list[HookCount]:
        """How many hooks modules and parameters had when some passes began, in order of time."""
        return hook_counts.read(self._database, self._contents())

    def optimizer_steps_before(self, graph_task: int) -> int:
        """How many optimizer steps there were before a graph task began."""
        return optimizer_steps.count_before(self._database, graph_task)

    def optimizers(self) -> list[OptimizerRow]:
        """The optimizers that stepped."""
        return step_facts.optimizers(self._database, self._contents())

    def step_facts(self) -> list[StepFactRow]:
        """What optimizers held and found when they stepped, in order of steps."""
        return step_facts.facts(self._database)

    def step_samples(self) -> list[StepSampleRow]:
        """Norms of a few small parameters around steps, in order of these."""
        return step_facts.samples(self._database, self._contents())

    def module_flags(self) -> list[tuple[str, bool]]:
        """Modules with an attribute ``requires_grad`` that no parameter follows, and what it is."""
        return self._contents().module_flags

    def repeated_modules(self) -> list[tuple[str, int, str]]:
        """Containers that hold one module several times: path, how often, and its first name."""
        return self._contents().repeated_modules

    def held_parameters(self) -> list[HeldParameterRow]:
        """What optimizers hold, anew from each step on at which that had changed."""
        return step_facts.held_parameters(self._database, self._contents())

    def unheld_leaves(self) -> list[UnheldRow]:
        """Leaves that get gradients though no optimizer holds them."""
        return step_facts.unheld(self._database, self._contents())

    def not_finite(self) -> list[NotFiniteRow]:
        """Parameters and buffers that were not finite when a loss was not, and at the end."""
        return step_facts.not_finite(self._database, self._contents())

    def averages_without_statistics(self) -> tuple[str, ...]:
        """Batch norms in ``eval()`` whose weight is averaged, and whose statistics never were."""
        return self._contents().averages_without_statistics

    def module_states(self) -> tuple[StateFact, ...]:
        """Loads and saves of states of modules that do not do what they seem to."""
        return self._contents().module_states

    def seedings(self) -> tuple[SeedFact, ...]:
        """Seeds that were set more than once between steps of one optimizer."""
        return self._contents().seedings

    def dumps(self) -> list[DumpRow]:
        """What all threads were doing when somebody asked or nothing moved, in order of time."""
        return dumps.read(self._database, self._contents())

    def process_groups(self) -> list[ProcessGroup]:
        """The process groups in which collectives were called."""
        return distributed.process_groups(self._database, self._contents())

    def collectives(self) -> list[Collective]:
        """The collectives that this rank joined, in order of their creation."""
        return distributed.collectives(self._database, self._contents())

    def synchronised(self) -> list[Synchronised]:
        """Parameters whose gradients are synchronised between ranks; again after each change."""
        return distributed.synchronised(self._database, self._contents())

    def stages(self) -> dict[int, Stage]:
        """Stage and microbatch of a pipeline's passes, by graph task."""
        return distributed.stages(self._database)

    def forwards(self) -> Mapping[int, int]:
        """When the forward of each pass began (``time.monotonic_ns()``), by graph task.

        That is the first call of a module since the pass before; unknown without provenance.
        """
        begun, start_ns = self.task_facts.forwards, self.meta.start_ns
        return Known(
            self.graph_tasks, lambda place: None if begun[place] < 0 else begun[place] + start_ns
        )

    def module_calls(self, graph_task: int) -> list[ModuleCall]:
        """The calls of modules in the forward before a pass, in order of their begin."""
        return run_facts.calls(self._database, self._contents(), graph_task)

    def last_moment(self) -> LastMoment | None:
        """What the process was doing last, where it was killed; None: it was not, or not known.

        Known of the processes of distributed programs.
        """
        return None if self.meta.end_ns is not None else last_moment.read(Path(self.path))

    def fingerprints(self) -> dict[int, int]:
        """Checksums of graphs, by graph task: ranks that do the same have the same.

        Known of the processes of distributed programs.
        """
        return distributed.fingerprints(self._database)

    def scheduled(self) -> dict[int, Scheduled]:
        """What the calling threads had of the CPU, by graph task.

        Known of the processes of distributed programs, on Linux.
        """
        return distributed.scheduled(self._database)

    def pauses(self) -> list[Pause]:
        """Where the thread that calls backward was while nothing had happened, in order of time.

        Known of the processes of distributed programs.
        """
        return distributed.pauses(self._database, self._contents())

    def digests(self) -> list[Digest]:
        """Checksums of parameters and gradients, in order of steps.

        Known of the processes of distributed programs.
        """
        return distributed.digests(self._database, self._contents())

    def held(self) -> list[HeldRow]:
        """The threads that a debugger has stopped, and for how long, in order of time."""
        return held.read(self._database, self._contents())

    def edges(self, graph_task: int) -> list[EdgeRow]:
        """The edges of a graph task, by producer and output."""
        self.graph_task(graph_task)
        return self._nodes().edges(graph_task)

    def name(self, graph_task: int, node: int) -> str:
        """The short name of a node, without the rest of its row."""
        self.graph_task(graph_task)
        return self._nodes().name(graph_task, node)

    def node_labels(self, graph_task: int, first: int, count: int) -> list[NodeLabel]:
        """Types and modules of the next ``count`` nodes of a graph task from ``first`` on."""
        return self._nodes().labels(graph_task, first, count)

    def identities(self, graph_task: int) -> Iterator[NodeIdentity]:
        """What distinguishes the nodes of a graph task, by index."""
        self.graph_task(graph_task)
        return self._nodes().identities(graph_task)

    def labels(self, graph_task: int, nodes: Sequence[int]) -> dict[int, tuple[str, str]]:
        """Short names of some nodes, and the parameters or modules that they belong to.

        For at most some hundred nodes at once; the others are not read.
        """
        text = self._contents().name
        found = self._nodes().described(graph_task, nodes)
        return {
            node: (short_name(text(name)), text(parameter) or text(module))
            for node, (_, name, parameter, module, *_) in found.items()
        }

    def forward_lines(self, graph_task: int, nodes: Sequence[int]) -> dict[int, Frame]:
        """The lines of the user's code that made some nodes, as far as they are known.

        For at most some hundred nodes at once; the others are not read.
        """
        stacks = self._nodes().origins_of(graph_task, nodes)
        found = {node: visible(stack) for node, stack in stacks.items()}
        return {node: frame for node, frame in found.items() if frame is not None}

    def output_norms(self, graph_task: int, after: int, until: int) -> list[tuple[int, float]]:
        """Nodes and the norms of gradients that they put out, where all elements are finite.

        Args:
            graph_task: whose nodes.
            after: ``seq`` of the event before the first that is looked at.
            until: of the last.
        """
        return self._nodes().output_norms(graph_task, after, until)

    def placed(
        self, graph_task: int, first: int, before: int
    ) -> tuple[list[PlacedNode], list[EdgeRow]]:
        """Some nodes that follow each other, by index, and the edges that leave them.

        For who takes a large graph to columns: nothing that was read is kept.
        """
        return self._nodes().placed(graph_task, first, before)

    def edges_into(self, graph_task: int, node: int) -> list[EdgeRow]:
        """The edges that lead into a node, by slot."""
        self.graph_task(graph_task)
        return self._nodes().edges_into(graph_task, node)

    def edges_from(self, graph_task: int, node: int, limit: int = _ALL) -> list[EdgeRow]:
        """The first edges that leave a node, by output."""
        self.graph_task(graph_task)
        return self._nodes().edges_from(graph_task, node, limit)

    def fan_out(self, graph_task: int, node: int) -> tuple[int, int]:
        """Number of edges that leave a node, and of its outputs up to the last that is needed."""
        self.graph_task(graph_task)
        return self._nodes().fan_out(graph_task, node)

    def leaves(self, graph_task: int) -> dict[int, str]:
        """The AccumulateGrad nodes: names of their parameters, empty where unknown, by index."""
        self.graph_task(graph_task)
        return self._nodes().leaves(graph_task)

    def captures(self, graph_task: int) -> list[tuple[int, int]]:
        """Node and slot from which ``grad`` took each of its results, in order."""
        return self._events().captures(self.graph_task(graph_task))

    def family(self, graph_task: int) -> list[int]:
        """A graph task, and the reentrant ones inside it; parents come before their children."""
        self.graph_task(graph_task)
        return self.graph_tasks.family(graph_task)

    def executions(self, graph_task: int) -> list[ExecutionRow]:
        """The nodes taken up by a thread, in the order of NodeStarted."""
        self.graph_task(graph_task)
        return [row for row in self._nodes().executions(graph_task) if row.order]

    def node_times(self, graph_task: int) -> NodeTimes:
        """When the nodes of a graph task ran, in columns."""
        task = self.graph_task(graph_task)
        if self._contents().has_shortcuts and (found := self._timeline().of(graph_task)):
            return found.times
        size = max(task.nodes, 0)
        times = NodeTimes(array("q", bytes(8 * size)), array("q", bytes(8 * size)), [-1] * size)
        for row in self.executions(graph_task):
            times.starts[row.node] = row.start_ns - task.begin_ns
            times.durations[row.node] = 0 if row.end_ns is None else row.end_ns - row.start_ns
            times.threads[row.node] = row.thread
        return times

    def self_times(self, graph_task: int) -> list[int]:
        """Time in ns that each of :meth:`executions` took, reentrant graph tasks in it included.

        Nodes of the same graph task that ran inside it, in a reentrant call on the same thread, are
        taken off.
        """
        self.graph_task(graph_task)
        nodes = self._nodes()
        rows, times = nodes.executions(graph_task), nodes.self_times(graph_task)
        return [self_ns for row, self_ns in zip(rows, times, strict=True) if row.order]

    def arrivals(self, graph_task: int) -> list[ArrivalRow]:
        """The gradients that arrived in InputBuffers of a graph task, as it happened."""
        return self._events().arrivals(self.graph_task(graph_task))

    def event_count(self, graph_task: int | None = None) -> int:
        """Number of events of a graph task, or of the whole trace."""
        return self._events().count(graph_task)

    @property
    def last_seq(self) -> int:
        """``seq`` of the last event; -1: there is none."""
        return self._events().last()

    def events(
        self, graph_task: int | None = None, offset: int = 0, limit: int = 100
    ) -> list[Event]:
        """Events ``offset`` to ``offset + limit`` in order of ``seq``, as they were emitted.

        Args:
            graph_task: only those of this graph task; None: all.
            offset: position of the first, from 0.
            limit: at most this many.
        """
        return self._events().page(graph_task, offset, limit)

    def events_of(self, seqs: Sequence[int]) -> list[Event]:
        """The events with these ``seq``, in order; at most some hundreds at once."""
        return self._events().numbered(seqs)

    def seqs_where(
        self,
        graph_task: int,
        kinds: Collection[type[Event]] = (),
        thread: int | None = None,
        node: int | None = None,
        *,
        nonfinite: bool = False,
    ) -> list[int]:
        """``seq`` of the events of a graph task that are of these kinds; no kinds: of any.

        Args:
            graph_task: whose events.
            kinds: classes of ``agviz_engine.events``.
            thread: only events of this thread; None: of any.
            node: only events that concern this node; None: of any.
            nonfinite: beside those of the kinds, checks that found NaN or infinities.
        """
        found_only = nonfinite and events.NonFiniteChecked not in kinds
        wanted = {*kinds, events.NonFiniteChecked} if nonfinite else kinds
        numbers = {codec.KIND[kind] for kind in wanted}
        return self._events().seqs(graph_task, numbers, thread, node, found_only=found_only)

    def position(self, seq: int, graph_task: int | None = None) -> int:
        """Number of events (of ``graph_task``) before the one with ``seq``: its ``offset``."""
        return self._events().position(graph_task, seq)

    def graph_tasks_with(self, first: int, last: int, fits: Callable[[str], bool]) -> list[int]:
        """The graph tasks with a node whose name, module or parameter fits.

        Args:
            first: lowest number of a graph task that is looked at.
            last: the highest.
            fits: is asked about each text.
        """
        return self._nodes().graph_tasks_with(first, last, fits)

    def nodes_with(
        self, graph_task: int, fits: Callable[[str], bool]
    ) -> list[tuple[int, int | None]]:
        """The nodes of a graph task that fit so, each with ``seq`` of its NodeStarted, in order.

        Those that never started come last, with None.
        """
        self.graph_task(graph_task)
        return self._nodes().nodes_with(graph_task, fits)

    def story(self, graph_task: int, node: int) -> list[Event]:
        """Every event that concerns a node, in order.

        Those of the node itself, and those in which it gave a gradient to a consumer.
        """
        self.graph_task(graph_task)
        return self._events().about(graph_task, node)

    def nonfinite(self, graph_task: int | None = None, limit: int = 1000) -> list[NonFiniteRow]:
        """Outputs with NaN or infinities, in order of detection."""
        rows = self._events().findings(graph_task, limit)
        contents = self._contents()
        found = []
        for number, index, thread, output, nan, posinf, neginf, seq, t in rows:
            if not contents.graph_tasks.has(number):
                continue  # it was under way when the recording began
            nodes = self._nodes().nodes(number)
            if not 0 <= index < len(nodes):
                raise self._database.damaged("an event concerns a node that is not there")
            node = nodes[index]
            found.append(
                NonFiniteRow(
                    graph_task=number,
                    node=index,
                    name=node.short_name,
                    parameter=node.parameter,
                    module=node.module,
                    order=node.order,
                    thread=thread,
                    output=output,
                    nan=nan,
                    posinf=posinf,
                    neginf=neginf,
                    seq=seq,
                    time_ns=t + contents.meta.start_ns,
                )
            )
        return found

    def nonfinite_flows(self, graph_task: int) -> Flows:
        """The gradients with NaN or infinities, sums and roots included, and where they went."""
        return nonfinite.flows(self._database, self._contents(), self.graph_task(graph_task))

    def nonfinite_graph_tasks(self) -> list[int]:
        """The graph tasks with such a gradient, in order of their first."""
        pairs = zip(self.task_facts.nonfinite, self.graph_tasks.ids, strict=True)
        return [number for _, number in sorted(pair for pair in pairs if pair[0] >= 0)]

    def first_nonfinite_flow(self, graph_task: int) -> int | None:
        """``seq`` of the event in which the first such gradient of a graph task flowed, or None."""
        return nonfinite.first(self._database, self._contents(), self.graph_task(graph_task))

    def first_failure(self, graph_task: int) -> int | None:
        """``seq`` of the first NodeFailed of a graph task, else of its GraphTaskFailed, or None."""
        return self._events().first_failure(self.graph_task(graph_task))

    def nonfinite_results(self) -> list[int]:
        """The graph tasks that left such a gradient in a leaf, or gave it back, in order of ids."""
        return list(self.task_facts.results)

    def has_checks(self) -> bool:
        """Whether some output of a node was looked at for NaN and infinities."""
        return self._events().has_checks(None)

    def outline(self, graph_task: int) -> Outline:
        """Who ran when and what follows from whom, to be read piece by piece."""
        self.graph_task(graph_task)
        return Outline(self._contents(), self._nodes(), graph_task)

    def start_near(
        self, graph_task: int, seq: int, count: int, thread: int | None = None
    ) -> int | None:
        """``seq`` of the ``count``-th NodeStarted after an event, before it where negative.

        Args:
            graph_task: whose nodes.
            seq: of the event; any number will do.
            count: not 0.
            thread: only nodes that this thread took up; None: any.

        Returns:
            None where there are not so many.
        """
        task = self.graph_task(graph_task)
        return trace_events.start_near(self._database, task, seq, count, thread)

    def starts_near(self, seq: int, count: int) -> list[NodeBegun]:
        """The next ``count`` times that a node was taken up after an event, in any graph task.

        Args:
            seq: of the event; any number will do.
            count: not 0; negative: the ones before it, the nearest first.
        """
        return trace_events.starts_near(self._database, seq, count)

    def near(
        self, seq: int, count: int, *, thread: int | None = None, nodes: bool = False
    ) -> Place | None:
        """The place of the ``count``-th event after another, before it where negative.

        Args:
            seq: of the other; any number will do.
            count: not 0.
            thread: only what this thread did; None: any.
            nodes: count only where a node was taken up.

        Returns:
            In whichever graph task it is; None where there are not so many.
        """
        return trace_events.near(self._database, seq, count, thread=thread, nodes=nodes)

    def turns_beside(
        self, graph_task: int, after: int, until: int, limit: int = 1000
    ) -> list[Turn]:
        """What threads took up in other graph tasks than one between two events, in order.

        Args:
            graph_task: the one that is left out.
            after: ``seq`` of the first of the events, which is left out itself.
            until: of the last, which is.
            limit: at most so many.
        """
        return self._nodes().turns_beside(graph_task, after, until, limit)

    def is_checked(self, graph_task: int) -> bool:
        """Whether gradients of a graph task were looked at for NaN and infinities."""
        return self._events().has_checks(self.graph_task(graph_task))

    def first_nonfinite(self, graph_task: int | None = None) -> NonFiniteRow | None:
        """The first output with NaN or infinities, or None.

        The order of detection contains the causal one, with several device threads too: no other
        node had put out such a gradient before it. What it was given may still have been
        non-finite, as the gradient of a root or a sum of finite gradients; where that matters ask
        ``agviz explain``.
        """
        return next(iter(self.nonfinite(graph_task, limit=1)), None)

    def health(
        self,
        graph_task: int | None = None,
        node: int | None = None,
        slot: int | None = None,
        limit: int = 1_000_000,
    ) -> list[HealthRow]:
        """What was measured of gradients, in order of ``seq``; nothing at ``--values none``.

        Args:
            graph_task: only those of this graph task; None: all.
            node: only those of this node of ``graph_task``.
            slot: only those of this slot, an output in most rows (:attr:`HealthRow.role`).
            limit: at most this many.
        """
        flowed = self._flowed("health", graph_task, node, slot, limit)
        return health.read(self._database, self._contents(), *flowed)

    def health_between(self, graph_task: int, after: int, until: int) -> list[HealthRow]:
        """What was measured of gradients of a graph task between two events, in order of ``seq``.

        Args:
            graph_task: whose.
            after: ``seq`` of the event before the first that is looked at.
            until: of the last.
        """
        condition = (
            "health.seq > ? AND health.seq <= ? AND +event.graph_task = ? ORDER BY health.seq"
        )
        return health.read(self._database, self._contents(), condition, after, until, graph_task)

    def ways(self, graph_task: int, first: int, before: int) -> list[EdgeNorm]:
        """What nodes put out between two events and where it went, in order.

        Args:
            graph_task: whose nodes.
            first: ``seq`` of an event.
            before: the ``seq`` behind the last one.
        """
        return self._nodes().ways(graph_task, first, before)

    def health_at(self, seq: int) -> HealthRow | None:
        """What was measured in the event with ``seq``, or None."""
        rows = health.read(self._database, self._contents(), OF_EVENT, seq, seq, seq)
        return rows[0] if rows else None

    def values(
        self,
        graph_task: int | None = None,
        node: int | None = None,
        slot: int | None = None,
        limit: int = 1_000_000,
    ) -> list[ValueRow]:
        """Which gradients were recorded themselves, in order of ``seq``; some at ``--values full``.

        Takes the same arguments as :meth:`health`; :meth:`value` gives their elements.
        """
        flowed = self._flowed("tensor", graph_task, node, slot, limit)
        return values.read(self._database, self._contents(), *flowed)

    def value(self, seq: int) -> Tensor:
        """The gradient that flowed in the event with ``seq``, bit for bit, on the CPU.

        A dimension in which it was expanded is expanded here too. Imports torch; without torch, see
        :meth:`value_parts`. Raises TraceError where it is not in the file.
        """
        row = self._value_row(seq)
        return values.tensor(self._database, self._contents(), row)

    def value_parts(self, seq: int) -> dict[str, Part]:
        """A gradient as bytes: the strided tensors it consists of, by name.

        ``values``, for a strided one; ``schema.py`` lists those of other layouts.
        """
        self._value_row(seq)
        return values.read_parts(self._database, self._contents(), seq)

    def isolated(self) -> list[tuple[int, int]]:
        """Graph task and node of each node that was kept by ``--repro``."""
        return isolated.listed(self._database)

    def isolated_node(self, graph_task: int, node: int) -> bytes:
        """What was kept of one of them, as a safetensors file; empty where nothing was."""
        return isolated.read(self._database, graph_task, node)

    def stored_values(self) -> StoredValues:
        """How many gradients are in the file themselves, how large, and why others are not."""
        return values.stored(self._database, self._contents())

    def slowest(self, n: int = 10, graph_task: int | None = None) -> Slowest:
        """The ``n`` types of nodes with the largest self time and the ``n`` longest executions."""
        rows, times = self._executed(graph_task)
        totals: dict[str, list[int]] = {}
        ended = []
        for row, self_ns in zip(rows, times, strict=True):
            if row.order and row.end_ns is not None:
                ended.append(row)
                duration = row.end_ns - row.start_ns
                total = totals.setdefault(row.name, [0, 0, 0, 0])
                total[0] += 1
                total[1] += duration
                total[2] += self_ns
                total[3] = max(total[3], duration)
        types = [TypeTime(name, *total) for name, total in totals.items()]
        types.sort(key=lambda row: (-row.self_ns, row.name))
        return Slowest(types[:n], heapq.nsmallest(n, ended, key=_longest_first))

    def _executed(self, graph_task: int | None) -> tuple[list[ExecutionRow], list[int]]:
        """Executions, and their times without whatever else ran inside them."""
        nodes = self._nodes()
        rows = nodes.executions(graph_task)
        inside = [] if graph_task is None else self.graph_tasks.family(graph_task)
        if len(inside) < 2:
            return rows, nodes.self_times(graph_task)
        everything = [row for number in inside for row in nodes.executions(number)]
        everything.sort(key=attrgetter("seq"))
        times = zip(everything, self_times(everything), strict=True)
        return rows, [self_ns for row, self_ns in times if row.graph_task == graph_task]

    def hook_times(self, graph_task: int | None = None) -> list[HookTime]:
        """Time spent in hooks, the largest total first."""
        task = None if graph_task is None else self.graph_task(graph_task)
        rows = self._events().hooks(task)
        text = self._contents().name
        return [
            HookTime(text(kind), text(name), calls, total, changed)
            for kind, name, calls, total, changed in rows
        ]

    def hook_calls(self, graph_task: int) -> list[HookCalls]:
        """Which hooks ran at which node, in order of nodes."""
        task = self.graph_task(graph_task)
        return hook_calls.read(self._database, self._contents(), self._events(), task)

    def thread_times(self, graph_task: int | None = None) -> list[ThreadTime]:
        """What every thread did, by thread id."""
        executed: Counter[int] = Counter()
        busy: Counter[int] = Counter()
        nodes = self._nodes()
        rows, times = nodes.executions(graph_task), nodes.self_times(graph_task)
        for row, self_ns in zip(rows, times, strict=True):
            if row.order and row.end_ns is not None:
                executed[row.thread] += row.status is not NodeStatus.SKIPPED
                busy[row.thread] += self_ns
        return [ThreadTime(thread, executed[thread], busy[thread]) for thread in sorted(executed)]

    def depths(self, graph_task: int, end_ns: int, count: int) -> list[Depth]:
        """How long queues were while a graph task ran, in order of time.

        Args:
            graph_task: whose time is looked at; what others push and pop at that time counts, too.
            end_ns: where the last step ends.
            count: number of steps of equal length, 1 or more.
        """
        steps = Steps.of(self.graph_task(graph_task), self.meta.start_ns, end_ns, count)
        return timeline.depths(self._database, steps)

    def live_bytes(self, graph_task: int, end_ns: int, count: int) -> Iterator[Bytes]:
        """Bytes of the gradients in all InputBuffers meanwhile; arguments as for `depths`."""
        steps = Steps.of(self.graph_task(graph_task), self.meta.start_ns, end_ns, count)
        changes = self._timeline().live_changes(steps.first_seq, steps.last_seq)
        return timeline.live_bytes(changes, steps)

    def live_changes(self, first: int, last: int) -> Iterator[LiveBytes]:
        """Bytes of the gradients in all InputBuffers whenever they change between two events.

        Args:
            first: ``seq`` of the first event; what was there before comes first, if anything was.
            last: of the last one.
        """
        return self._timeline().live_changes(first, last)

    def state_at(self, graph_task: int, position: int) -> EngineState:
        """The engine's state after the first ``position`` events of a graph task.

        Args:
            graph_task: whose events are counted; the state holds what else was under way too.
            position: 0 (before GraphTaskBegun) to ``event_count(graph_task)``.
        """
        task = self.graph_task(graph_task)
        seq, time_ns = task.begin_seq - 1, 0
        if position > 0:
            found = self.events(graph_task, offset=position - 1, limit=1)
            if not found:
                raise TraceError(
                    f"graph task {graph_task} of {self.path} has {self.event_count(graph_task)} "
                    f"events, there is no position {position}"
                )
            seq, time_ns = found[0].seq, found[0].time_ns
        return self._timeline().state_at(seq, time_ns)

    def replay(self) -> BackwardState:
        """The state before any event, to be moved on with ``apply``; for who looks at all events.

        It takes impossible events as well as can be where the recording has holes.
        """
        meta = self.meta
        has_holes = meta.end_ns is None or meta.partial or bool(meta.stopped)
        return BackwardState(self._nodes().shape, tolerant=has_holes)

    def _flowed(
        self, table: str, graph_task: int | None, node: int | None, slot: int | None, limit: int
    ) -> tuple[str, *tuple[int, ...]]:
        """The condition of the events in which a gradient of a table flowed, and its parameters."""
        numbers: tuple[int, ...] = ()
        task = None if graph_task is None else self._contents().graph_task(graph_task)
        if task is None:
            mine = f"TRUE {of(graph_task, 'event.graph_task')} {of(node, 'event.node')}"
            numbers = *given(graph_task), *given(node)
        elif node is None:
            mine, numbers = DURING, place(task)
        else:
            mine = self._events().of_node(task.id, node, beside=table)
        numbers = *numbers, *given(slot), max(limit, 0)
        return (f"{mine} {of(slot, health.SLOT)} ORDER BY event.seq LIMIT ?", *numbers)

    def _value_row(self, seq: int) -> ValueRow:
        rows = values.read(self._database, self._contents(), OF_EVENT, seq, seq, seq)
        if not rows:
            raise TraceError(f"{self.path} holds no gradient for event {seq}; see its values()")
        if rows[0].unknown:
            raise TraceError(
                f"the gradient of event {seq} is not in {self.path} ({rows[0].unknown})"
            )
        return rows[0]

    def _read_anew(self) -> None:
        contents = self._all_contents = Contents(self._database)
        events = self._all_events = EventReader(
            self._database,
            contents.events,
            lambda: contents.has_shortcuts,
            lambda graph_task: self._timeline().of(graph_task),
        )
        self._all_nodes = NodeReader(self._database, contents, events)
        self._known_facts = None

    def _contents(self) -> Contents:
        version = self._database.version()
        if version != self._version:  # the file grew
            self._version = version
            self._read_anew()
        return self._all_contents

    def _events(self) -> EventReader:
        self._contents()
        return self._all_events

    def _nodes(self) -> NodeReader:
        self._contents()
        return self._all_nodes

    def _timeline(self) -> Timeline:
        is_closed = self._contents().meta.end_ns is not None
        known = self._known_timeline
        if known is None or known.is_closed is not is_closed:
            known = self._known_timeline = Timeline(
                self._database, lambda: self.graph_tasks, is_closed=is_closed
            )
        return known


def _longest_first(row: ExecutionRow) -> tuple[int, int]:
    return (row.start_ns - (row.end_ns or row.start_ns), row.seq)
