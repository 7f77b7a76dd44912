"""What the terminal UI shows, as plain data: a recording, a moment of it, and the playhead.

Nothing here knows a screen, a thread or a file.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from agviz.traces.rows import GraphTaskStatus, NodeStatus
from agviz.tui.timeline import Lane
from agviz.words.labels import numbered, queue_label, with_origin
from agviz_engine.events import NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agviz.analysis.module_tree import ModuleTree
    from agviz.debugger.messages import StopTensor
    from agviz.traces.engine_state import EngineState
    from agviz.traces.health import HealthRow
    from agviz.traces.nodes import Turn
    from agviz.traces.outline import Arrived as ArrivedGradients
    from agviz.traces.rows import (
        EdgeRow,
        Frame,
        GraphTaskRow,
        Meta,
        NodeRow,
        QueueContents,
        SavedRow,
        ThreadRow,
    )
    from agviz.tui.columns import NodeFacts, OutlineColumns
    from agviz.tui.histogram import Sample
    from agviz.tui.line_figures import PassFigures, SourceText
    from agviz.tui.relatives import RelatedPass
    from agviz_engine.events import Event

PAGE: Final = 200
"""Events are read and kept by this many."""
_MOST: Final = 20_000
"""Executions that are kept of one thread; the first ones."""


class State(StrEnum):
    """How a node looks at a moment: its status, or that it made something non-finite."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NONFINITE = "nonfinite"

    @property
    def glyph(self) -> str:
        """One cell that says the same as the colour."""
        return _GLYPHS[self]

    @property
    def label(self) -> str:
        """The state in words."""
        return "non-finite" if self is State.NONFINITE else self.value


_GLYPHS = {
    State.WAITING: "◌",
    State.READY: "○",
    State.RUNNING: "●",
    State.DONE: "✓",
    State.SKIPPED: "⊘",
    State.FAILED: "✗",
    State.UNKNOWN: "?",
    State.NONFINITE: "!",
}


class Key(NamedTuple):
    """Which recording: a file of those that were opened, and a graph task in it."""

    file: int
    graph_task: int


@dataclass(frozen=True, kw_only=True)
class LoadedPass:
    """One graph task of one file, as far as it was read; the columns grow while it is shown."""

    key: Key
    path: str
    meta: Meta
    task: GraphTaskRow
    threads: dict[int, ThreadRow]
    columns: OutlineColumns
    event_count: int
    is_checked: bool
    """Whether gradients were looked at for NaN and infinities."""
    siblings: int
    """Number of graph tasks in the file."""
    number: str
    """Which of them it is: ``30 of 40``."""
    trouble: str = ""
    """What has become of the file since it was opened; empty: nothing."""
    read: int = 0
    """Version of the columns: a view of more of them is another view."""

    def is_same(self, other: LoadedPass | None) -> bool:
        """Whether both are states of one and the same, one of which may know more."""
        return other is not None and other.columns is self.columns

    def is_of(self, meta: Meta) -> bool:
        """Whether it is part of the recording that is described."""
        ours = self.meta.pid, self.meta.started_unix_ns, self.meta.start_ns
        return ours == (meta.pid, meta.started_unix_ns, meta.start_ns)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.columns.nodes

    def node(self, index: int) -> NodeFacts:
        """What a list says about a node."""
        return self.columns.facts(index)

    @property
    def first_nonfinite(self) -> int | None:
        """``seq`` of the first finding of NaN or infinities, once it was read."""
        return self.columns.nonfinite[0][0] if self.columns.nonfinite else None

    @property
    def thread_ids(self) -> list[int]:
        """Threads that took up a node or made the call, by id."""
        return sorted({self.task.thread, *self.columns.by_thread})

    @property
    def span_ns(self) -> tuple[int, int]:
        """Begin and end; where the end is unknown, the last thing that is."""
        begin = self.task.begin_ns
        end = self.columns.last_ns if self.task.end_ns is None else self.task.end_ns
        return begin, max(end, begin + 1)

    def label(self, node: int) -> str:
        """``#12 AddmmBackward0``: number in execution order and name."""
        facts = self.columns.facts(node)
        if not facts.short_name:
            return f"node {node}"
        if facts.order:
            return numbered(facts.order, facts.short_name)
        return with_origin(facts.short_name, "never ran" if self.is_over else "not yet run")

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens in it."""
        return self.task.status is not GraphTaskStatus.RUNNING

    def place(self, node: int) -> str:
        """The parameter or module a node belongs to; empty where neither is known."""
        return self.columns.facts(node).place

    def thread_label(self, thread: int) -> str:
        """``T1 device 0``: a thread and the ReadyQueue it serves."""
        row = self.threads.get(thread)
        return f"T{thread} {queue_label(row.queue)}" if row else f"T{thread}"


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The engine after the first ``position`` events of a graph task. Never moved on."""

    graph_task: int
    position: int
    event: Event | None
    """The last of these events; None at position 0."""
    state: EngineState = field(repr=False)

    def node_state(self, node: int) -> State:
        """The state of a node; every node waits until the dependencies are computed."""
        try:
            status = self.state.status(self.graph_task, node)
        except (KeyError, IndexError):
            return State.WAITING
        if status is not NodeStatus.FAILED and self.state.is_nonfinite(self.graph_task, node):
            return State.NONFINITE
        return State(status.value)

    def count_states(self, nodes: Sequence[int]) -> Counter[State]:
        """How many of some nodes are in each state."""
        try:
            statuses = self._statuses
        except KeyError:
            statuses = []
        if not statuses:
            return Counter({State.WAITING: len(nodes)})
        counted = Counter(map(statuses.__getitem__, nodes))
        found = Counter({State(status.value): number for status, number in counted.items()})
        for node in self.state.nonfinite(self.graph_task).intersection(nodes):
            if statuses[node] is not NodeStatus.FAILED:
                found[State(statuses[node].value)] -= 1
                found[State.NONFINITE] += 1
        return found

    @cached_property
    def _statuses(self) -> list[NodeStatus]:
        return self.state.statuses(self.graph_task)

    def is_running(self, node: int) -> bool:
        """Whether a thread is inside the node."""
        tasks = [task for tasks in self.state.running().values() for task in tasks]
        return any(t.graph_task == self.graph_task and t.node == node for t in tasks)

    def remaining(self, node: int, dependencies: int) -> int:
        """Dependencies that a node still waits for; all, where they were not computed yet."""
        try:
            return self.state.remaining(self.graph_task, node)
        except (KeyError, IndexError):
            return dependencies

    def buffer(self, node: int) -> dict[int, int]:
        """Slots of a node's InputBuffer that hold a gradient, and their bytes."""
        try:
            return self.state.buffer(self.graph_task, node)
        except (KeyError, IndexError):
            return {}

    @cached_property
    def queues(self) -> list[QueueContents]:
        """The ReadyQueues, callers' queues first."""
        return self.state.queues()

    @cached_property
    def executed(self) -> int:
        """Number of nodes that finished."""
        if self.graph_task not in self.state.graph_tasks:
            return 0
        return self.state.executed(self.graph_task)

    @property
    def live_bytes(self) -> int:
        """Bytes of the gradients in InputBuffers."""
        return self.state.live_bytes

    @property
    def node(self) -> int | None:
        """The node the last event is about."""
        node = getattr(self.event, "node", None)
        return node if isinstance(node, int) and node >= 0 else None

    @property
    def time_ns(self) -> int | None:
        """Time of the last event."""
        return None if self.event is None else self.event.time_ns


class Measure(NamedTuple):
    """What was recorded of a gradient."""

    health: HealthRow
    sample: Sample | None
    """Its elements; None where they are not in the file."""
    unknown: str
    """Why they are not, where the recording keeps others."""


class SourceLine(NamedTuple):
    """A line of the program."""

    frame: Frame
    text: str
    """Without its indentation; empty where the file is not there."""


class Degree(NamedTuple):
    """How many edges lead into a node and out of it."""

    into: int
    out: int
    outputs: int
    """Its outputs up to the last one that is needed."""


class NodeDetails(NamedTuple):
    """What was read of one node."""

    node: NodeRow
    events: tuple[Event, ...]
    """Those of the node itself but for arrivals, and the gradients it gave."""
    arrived: tuple[ArrivedGradients, ...]
    """The gradients it received, by slot."""
    saved: tuple[SavedRow, ...]
    """The tensors it had saved for backward."""
    edges_in: tuple[EdgeRow, ...]
    """The first of them, by slot."""
    edges_out: tuple[EdgeRow, ...]
    """The first of them, by output."""
    degree: Degree
    inside: tuple[RelatedPass, ...] = ()
    """The graph tasks that it began."""
    around: RelatedPass | None = None
    """The node that began its graph task."""
    measures: tuple[Measure, ...] = ()
    """What was measured of its gradients, in order of ``seq``."""
    received: tuple[tuple[EdgeRow, Measure], ...] = ()
    """What was measured of what came along the only edge into a slot, as its producer put it out:
    hooks may have changed it since."""
    source: tuple[SourceLine, ...] = ()
    """The lines that created it, innermost first."""
    elements: tuple[tuple[bool, str], ...] = ()
    """Which sample and position it is where an output is not finite, or (false) largest."""


class Mark(StrEnum):
    """A breakpoint at a node, by what it will do."""

    STOPS = "stops"
    ONCE = "once"
    LOGS = "logs"
    DISABLED = "disabled"

    @property
    def glyph(self) -> str:
        """One cell that says it."""
        return _MARKS[self]


_MARKS = {Mark.STOPS: "◆", Mark.ONCE: "◈", Mark.LOGS: "▷", Mark.DISABLED: "◇"}


class StopTensors(NamedTuple):
    """What a stopped program lets one look at."""

    graph_task: int
    node: int
    seq: int
    """Of the event behind which it is."""
    tensors: tuple[StopTensor, ...]


class OtherExecution(NamedTuple):
    """A node that a thread took up in another graph task."""

    seq: int
    graph_task: int
    node: int
    name: str


class Executions:
    """Those of one thread in other graph tasks, in order."""

    def __init__(self) -> None:
        self._starts = array("q")
        self._ends = array("q")
        """-1: it has not ended."""
        self._executions: list[OtherExecution] = []
        self._open: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._executions)

    def __getitem__(self, place: int) -> OtherExecution:
        return self._executions[place]

    def add(self, turn: Turn) -> None:
        """Take a start or an end."""
        key = turn.graph_task, turn.node
        if not turn.is_start:
            place = self._open.pop(key, None)
            if place is not None:
                self._ends[place] = turn.time_ns
        elif len(self._executions) < _MOST:
            self._open[key] = len(self._executions)
            self._executions.append(OtherExecution(turn.seq, *key, turn.name))
            self._starts.append(turn.time_ns)
            self._ends.append(-1)

    def lane(self, end_ns: int) -> Lane:
        """For a line of the panel; what has not ended is drawn until ``end_ns``."""
        return Lane(self._starts, self._ends, (), end_ns)


@dataclass(frozen=True)
class OtherTasks:
    """What was read of other graph tasks while one goes on. A copy knows more of the same."""

    key: Key
    """The graph task that is shown."""
    until: int = -1
    """``seq`` up to which it was read."""
    threads: dict[int, Executions] = field(default_factory=dict)

    def more(self, turns: Iterable[Turn], until: int) -> OtherTasks:
        """The same, read on."""
        for turn in turns:
            self.threads.setdefault(turn.thread, Executions()).add(turn)
        return OtherTasks(self.key, until, self.threads)


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything a panel needs to draw itself."""

    recording: LoadedPass
    moment: Moment
    selected: int | None = None
    """The node the user looks at."""
    story: NodeDetails | None = None
    """What was read of a node, once it was."""
    thread: int | None = None
    """Only this thread; None: all."""
    follows: bool = False
    """Whether the playhead stays at the end of a trace that grows."""
    found: tuple[int, str] | None = None
    """A node that was searched for, and which of how many it is."""
    is_live: bool = False
    """Whether there is a program that can be stopped."""
    marks: Mapping[int, Mark] = field(default_factory=dict)
    """Breakpoints, by node."""
    line_marks: Mapping[str, Mark] = field(default_factory=dict)
    """Breakpoints at lines, by the line as it was written: ``train.py:12``."""
    stop_tensors: StopTensors | None = None
    """The tensors of the node that a program is at."""
    stopped_threads: frozenset[int] = frozenset()
    """Threads of the program that are stopped."""
    other_tasks: OtherTasks | None = None
    """What the program's threads do in other graph tasks."""
    why: str = ""
    """Why the playhead was put where it is; empty: the user has put it there."""
    figures: PassFigures | None = None
    """What happened in the pass by line, as far as it was read."""
    modules: ModuleTree | None = None
    """The same by module."""
    text: SourceText | None = None
    """A file of the program, once it was read."""
    busy: str = ""
    """What is being looked for in other graph tasks; empty: nothing."""

    @property
    def span_ns(self) -> tuple[int, int]:
        """Begin and end of the graph task; of one that goes on, what is known of it by now."""
        begin, end = self.recording.span_ns
        return begin, max(end, self.moment.time_ns or 0)

    @property
    def threads(self) -> list[int]:
        """Threads that have a part in what is shown, by id."""
        threads = {*self.recording.thread_ids, *self.stopped_threads}
        return sorted(
            threads if self.other_tasks is None else {*threads, *self.other_tasks.threads}
        )

    def lacks(self, field: Literal["figures", "modules"]) -> bool:
        """Whether that is still to be read of the graph task as it is now."""
        known = self.figures if field == "figures" else self.modules
        is_known = known is not None and known.event_count == self.recording.event_count
        return self.recording.columns.is_complete and not is_known

    def stops_before(self, node: int) -> bool:
        """Whether the program is stopped there: the node was taken up and has not run yet."""
        event = self.moment.event
        return (
            isinstance(event, NodeStarted)
            and event.node == node
            and event.thread in self.stopped_threads
        )

    @property
    def tensors(self) -> Sequence[StopTensor]:
        """Those of the node that was read, where the playhead is where the program is."""
        found, event = self.stop_tensors, self.moment.event
        if found is None or event is None or self.story is None:
            return ()
        key = self.recording.key.graph_task, self.story.node.index, event.seq
        return found.tensors if key == (found.graph_task, found.node, found.seq) else ()


class Track(Protocol):
    """Finds events of a graph task by what they are."""

    @property
    def count(self) -> int:
        """Number of events."""

    def locate(self, seq: int) -> int:
        """Number of events before the one with ``seq``."""

    def seq_at(self, offset: int) -> int:
        """``seq`` of the event at an offset."""

    def start(self, seq: int, count: int, thread: int | None) -> int | None:
        """The ``count``-th NodeStarted after ``seq``, before it where negative; None: no such."""

    def stop(self, seq: int, count: int) -> int | None:
        """The same for failures and non-finite findings."""


class Beyond(NamedTuple):
    """A move that led beyond an end of a graph task."""

    kind: Literal["node", "event", "stop"]
    by: int
    """How many; negative: backwards."""
    seq: int
    """Of the event behind which it began; -1: the beginning."""
    thread: int | None = None
    """Only nodes that this thread took up; None: any."""


class Playhead:
    """Where in the events of a graph task the user is, and how each key moves it.

    The playhead is between events: at ``position`` the first ``position`` events have
    happened and ``seq`` is the last of them.
    """

    def __init__(self, track: Track) -> None:
        self.position = 0
        self.seq = -1
        self.beyond: Beyond | None = None
        """The last move led beyond the end that it began at; a move to a stop, where there was none
        up to the end."""
        self._track = track

    def to_position(self, position: int) -> None:
        """After ``position`` events, or at the nearest end."""
        self.beyond = None
        self.position = min(max(position, 0), self._track.count)
        self.seq = self._track.seq_at(self.position - 1) if self.position else -1

    def to_seq(self, seq: int) -> None:
        """Just after the event with ``seq``, or at the end where it is not there yet."""
        self.beyond = None
        position = self._track.locate(seq) + 1
        if position > self._track.count:
            self.to_end()
        else:
            self.position, self.seq = position, seq

    def to_end(self) -> None:
        """After all events there are."""
        self.to_position(self._track.count)

    def by_events(self, count: int) -> None:
        """``count`` events on, back where it is negative."""
        before = self.position
        self.to_position(before + count)
        if count and self.position == before:
            self.beyond = Beyond("event", count, self.seq)

    def by_nodes(self, count: int, thread: int | None = None) -> None:
        """To the moment at which the next node was taken up, ``count`` times.

        Args:
            count: number of nodes; negative: backwards.
            thread: only nodes that this thread took up; None: any.
        """
        before = self.position
        seq = self._track.start(self.seq, count, thread) if count else self.seq
        if not self._to(seq, count) and self.position == before:
            self.beyond = Beyond("node", count, self.seq, thread)

    def by_stops(self, count: int) -> None:
        """To the next failure or non-finite finding, ``count`` times; the end if there is none."""
        before = self.seq
        if not self._to(self._track.stop(before, count), count):
            self.beyond = Beyond("stop", count, before)

    def _to(self, seq: int | None, count: int) -> bool:
        """Go there, or to an end where it is not; whether it is."""
        if seq is None:
            self.to_position(self._track.count if count > 0 else 0)
        elif seq >= 0:
            self.to_seq(seq)
        return seq is not None
