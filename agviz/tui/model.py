"""What the terminal UI shows, as plain data: a recording, a moment of it, and the playhead.

Nothing here knows a screen, a thread or a file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.rows import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.traces.rows import (
        EdgeRow,
        ExecutionRow,
        GraphTaskRow,
        Meta,
        NodeRow,
        NonFiniteRow,
        SavedRow,
        ThreadRow,
    )
    from agviz.traces.state import BackwardState, QueueContents
    from agviz_engine.events import Event

PAGE: Final = 200
"""Events are read and kept by this many."""


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
class Recording:
    """One graph task of one file, as read."""

    key: Key
    path: str
    meta: Meta
    task: GraphTaskRow
    threads: dict[int, ThreadRow]
    nodes: Sequence[NodeRow]
    edges: list[EdgeRow]
    executions: list[ExecutionRow]
    event_count: int
    stops: list[int]
    """``seq`` of the events at which ``continue`` stops: failures and non-finite findings."""
    first_nonfinite: NonFiniteRow | None
    siblings: int
    """Number of graph tasks in the file."""

    def prepare(self) -> None:
        """Work out what the panels need, so that none of them has to wait for it."""
        _ = self.edges_out, self.edges_in, self.execution_of, self.execution_order, self.chains
        _ = self.thread_ids, self.span_ns

    @cached_property
    def edges_out(self) -> list[list[EdgeRow]]:
        """For every node the edges along which it gives gradients."""
        found: list[list[EdgeRow]] = [[] for _ in self.nodes]
        for edge in self.edges:
            found[edge.producer].append(edge)
        return found

    @cached_property
    def edges_in(self) -> list[list[EdgeRow]]:
        """For every node the edges along which it receives gradients."""
        found: list[list[EdgeRow]] = [[] for _ in self.nodes]
        for edge in self.edges:
            found[edge.consumer].append(edge)
        return found

    @cached_property
    def execution_of(self) -> dict[int, ExecutionRow]:
        """For every node that was taken up, its execution."""
        return {execution.node: execution for execution in self.executions}

    @cached_property
    def execution_order(self) -> list[int]:
        """All nodes: those that ran by their number, then those that never did."""
        ran = [execution.node for execution in self.executions]
        return ran + [node.index for node in self.nodes if node.order is None]

    @cached_property
    def chains(self) -> list[int]:
        """For every node the first of its linear chain, in which each node feeds only the next."""
        first = list(range(len(self.nodes)))
        for node in self.execution_order:
            out = self.edges_out[node]
            if len(out) == 1 and self.nodes[out[0].consumer].dependencies == 1:
                first[out[0].consumer] = first[node]
        return first

    @cached_property
    def thread_ids(self) -> list[int]:
        """Threads that took up a node or made the call, by id."""
        return sorted({self.task.thread, *(e.thread for e in self.executions)})

    @cached_property
    def span_ns(self) -> tuple[int, int]:
        """Begin and end; where the end is unknown, the last thing that is."""
        begin = self.task.begin_ns
        end = self.task.end_ns
        if end is None:
            times = [e.end_ns if e.end_ns is not None else e.start_ns for e in self.executions]
            end = max(times, default=begin)
        return begin, max(end, begin + 1)

    def label(self, node: int) -> str:
        """``#12 AddmmBackward0``: number in execution order and name."""
        row = self.nodes[node]
        return f"#{row.order} {row.short_name}" if row.order else f"{row.short_name} (never ran)"

    def place(self, node: int) -> str:
        """The parameter or module a node belongs to; empty where neither is known."""
        row = self.nodes[node]
        return row.parameter or row.module or ""

    def thread_label(self, thread: int) -> str:
        """``T1 device 0``: a thread and the ReadyQueue it serves."""
        row = self.threads.get(thread)
        return f"T{thread} {queue_label(row.queue)}" if row else f"T{thread}"


def queue_label(queue: int) -> str:
    """A ReadyQueue's device: ``device 0``, or ``caller`` for the queue of a calling thread."""
    return f"device {queue}" if queue >= 0 else "caller"


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The engine after the first ``position`` events of a graph task. Never moved on."""

    graph_task: int
    position: int
    event: Event | None
    """The last of these events; None at position 0."""
    state: BackwardState = field(repr=False)

    def node_state(self, node: int) -> State:
        """How a node stands; every node waits until the dependencies are computed."""
        try:
            status = self.state.status(self.graph_task, node)
        except (KeyError, IndexError):
            return State.WAITING
        if status is not NodeStatus.FAILED and self.state.is_nonfinite(self.graph_task, node):
            return State.NONFINITE
        return State(status.value)

    def is_running(self, node: int) -> bool:
        """Whether a thread is inside the node."""
        tasks = [task for tasks in self.state.running().values() for task in tasks]
        return any(t.graph_task == self.graph_task and t.node == node for t in tasks)

    def remaining(self, node: NodeRow) -> int:
        """Dependencies that a node still waits for."""
        try:
            return self.state.remaining(self.graph_task, node.index)
        except (KeyError, IndexError):
            return node.dependencies

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
        """Bytes of the gradients that stand in InputBuffers."""
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


class Story(NamedTuple):
    """What was read of one node."""

    node: int
    events: tuple[Event, ...]
    """All that concern it."""
    saved: tuple[SavedRow, ...]
    """The tensors it had saved for backward."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything a panel needs to draw itself."""

    recording: Recording
    moment: Moment
    selected: int | None = None
    """The node the user looks at."""
    story: Story | None = None
    """What was read of a node, once it was."""
    thread: int | None = None
    """Only this thread; None: all."""


class Playhead:
    """Where in the events of a graph task the user stands, and how each key moves it.

    The playhead stands between events: at ``position`` the first ``position`` events have
    happened and ``seq`` is the last of them.

    Args:
        event_count: number of events of the graph task.
        executions: its executions, by ``seq``.
        stops: ``seq`` of the events at which ``continue`` stops, ascending.
        locate: number of events before the one with a ``seq``.
        seq_at: ``seq`` of the event at an offset.
    """

    def __init__(
        self,
        event_count: int,
        executions: Sequence[ExecutionRow],
        stops: Sequence[int],
        locate: Callable[[int], int],
        seq_at: Callable[[int], int],
    ) -> None:
        self.position = 0
        self.seq = -1
        self._count = event_count
        self._starts: dict[int | None, list[int]] = {None: []}
        for execution in executions:
            self._starts[None].append(execution.seq)
            self._starts.setdefault(execution.thread, []).append(execution.seq)
        self._stops = stops
        self._locate = locate
        self._seq_at = seq_at

    def to_position(self, position: int) -> None:
        """After ``position`` events, or at the nearest end."""
        self.position = min(max(position, 0), self._count)
        self.seq = self._seq_at(self.position - 1) if self.position else -1

    def to_seq(self, seq: int) -> None:
        """Just after the event with ``seq``."""
        self.position = self._locate(seq) + 1
        self.seq = seq

    def by_events(self, count: int) -> None:
        """``count`` events on, back where it is negative."""
        self.to_position(self.position + count)

    def by_nodes(self, count: int, thread: int | None = None) -> None:
        """To the moment at which the next node was taken up, ``count`` times.

        Args:
            count: number of nodes; negative: backwards.
            thread: only nodes that this thread took up; None: any.
        """
        self._by(self._starts.get(thread, []), count)

    def by_stops(self, count: int) -> None:
        """To the next failure or non-finite finding, ``count`` times; the end if there is none."""
        self._by(self._stops, count)

    def _by(self, seqs: Sequence[int], count: int) -> None:
        if count > 0:
            index = bisect_right(seqs, self.seq) + count - 1
        else:
            index = bisect_left(seqs, self.seq) + count
        if index < 0:
            self.to_position(0)
        elif index >= len(seqs):
            self.to_position(self._count)
        else:
            self.to_seq(seqs[index])


def find(recording: Recording, wanted: str) -> list[int]:
    """Nodes whose name, module or parameter holds ``wanted``, in execution order.

    Upper and lower case count only where ``wanted`` has an upper-case letter.
    """
    exact = any(character.isupper() for character in wanted)

    def holds(text: str) -> bool:
        return wanted in (text if exact else text.lower())

    return [
        node
        for node in recording.execution_order
        if holds(recording.nodes[node].name) or holds(recording.place(node))
    ]
