"""Intervals: between which events each node of a graph task was queued, ran, held gradients.

A moment is a ``seq``. What is asked about a moment is answered by comparing it with integers in
columns, so that a state anywhere costs no replay. Columns are filled from the table ``timeline`` of
a closed recording, or from the events of one that grows, which only ever adds later moments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.rows import NodeStatus
from agviz.traces.schema import (
    ACCUMULATED,
    CHECKED,
    COMPUTED,
    FAILED,
    FINISHED,
    POPPED,
    PUSHED,
    SKIPPED,
    STARTED,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NEVER: Final = 2**63 - 1
"""A ``seq`` after all others."""
NO_NUMBER: Final = -1
"""Sequence number of AccumulateGrad nodes in columns."""
_OUTCOMES: Final = {
    FINISHED: NodeStatus.DONE,
    FAILED: NodeStatus.FAILED,
    SKIPPED: NodeStatus.SKIPPED,
}
_DECREMENT: Final = -1
"""In place of the slot: a dependency was decremented."""


class Span(NamedTuple):
    """When a graph task was under way."""

    id: int
    parent: int
    depth: int
    thread: int
    begin_seq: int
    end_seq: int
    """:data:`NEVER`: it did not end."""
    end_t: int
    """Time since the start of the recording; 0: it did not end."""
    last_seq: int
    """No node of it does anything after this event; where it failed, threads may go on."""
    nodes: int
    """0 until the dependencies are computed."""


class NodeEvent(NamedTuple):
    """An event that moves a node on, with what the timeline needs of it."""

    seq: int
    t: int
    thread: int
    graph_task: int
    kind: int
    node: int
    slot: int
    """Of a gradient's arrival; of a push: the queue."""
    value: int
    """Of a gradient's arrival: bytes in the slot; of a decrement: remaining dependencies."""


class Order:
    """Nodes by the moment at which something happened to them."""

    __slots__ = ("nodes", "seqs")

    def __init__(self, column: Sequence[int] = (), nodes: Iterable[int] = ()) -> None:
        self.nodes = sorted(nodes, key=column.__getitem__)
        self.seqs = [column[node] for node in self.nodes]

    def add(self, seq: int, node: int) -> None:
        """Add a node to which it happened later than to all others."""
        self.seqs.append(seq)
        self.nodes.append(node)

    def count(self, seq: int) -> int:
        """Number of nodes to which it had happened right after an event."""
        return bisect_right(self.seqs, seq)


class _Orders:
    """Nodes of a graph task by the moments at which they were pushed, popped, started, ended."""

    __slots__ = ("done", "ended", "popped", "pushed", "started", "through")

    def __init__(self, of: Intervals) -> None:
        self.pushed = _by_queue(of.pushed, of.queues)
        self.popped = _by_queue(of.popped, of.queues)
        self.started = Order(of.started, _known(of.started))
        self.ended = Order(of.ended, _known(of.ended))
        ended = zip(self.ended.seqs, self.ended.nodes, strict=True)
        self.through = [seq for seq, node in ended if of.started[node] != NEVER]
        """``seq`` of the ends of nodes that had started."""
        ended = zip(self.ended.seqs, self.ended.nodes, strict=True)
        self.done = [seq for seq, node in ended if of.outcome[node] == FINISHED]
        """``seq`` of each NodeFinished."""


def _by_queue(column: array[int], queues: array[int]) -> dict[int, Order]:
    nodes: dict[int, list[int]] = {}
    for node in _known(column):
        nodes.setdefault(queues[node], []).append(node)
    return {queue: Order(column, own) for queue, own in nodes.items()}


def _known(column: array[int]) -> Iterator[int]:
    return compress(range(len(column)), map(NEVER.__ne__, column))


class Intervals:
    """The nodes of one graph task, in columns; moments that are not known are :data:`NEVER`.

    Args:
        span: when it was under way.
    """

    def __init__(self, span: Span) -> None:
        self.span = span
        self.until = span.begin_seq - 1
        """Events up to here are in the columns of nodes."""
        self.arrivals_until = self.until
        """The same for those of arrivals; they are read only of graph tasks under way."""
        self.computed = span.end_seq
        """``seq`` of DependenciesComputed; before arrivals are read, of the end."""
        self.left_out: frozenset[int] = frozenset()
        """Nodes of whose events the recording keeps none."""
        self.sequence_nrs = array("q")
        self.dependencies = array("q")
        self.queues = array("q")
        """Device index of the queue that a node was pushed into; -1: that of a calling thread."""
        self.pushed = array("q")
        self.popped = array("q")
        self.started = array("q")
        self.ended = array("q")
        """First NodeFinished, NodeFailed or NodeSkipped."""
        self.end_times = array("q")
        self.outcome = bytearray()
        """Its kind."""
        self.threads = array("q")
        """Threads that took the nodes up."""
        self.failed: dict[int, int] = {}
        """NodeFailed of nodes that had finished before, by node."""
        self.nonfinite: dict[int, int] = {}
        """First finding of NaN or infinities in an output, by node."""
        self._orders: _Orders | None = None
        self._stuck: dict[int, tuple[int, list[int]]] = {}
        """By queue: number of its pushes and pops, and the pushes of nodes that never left."""
        # Arrivals of gradients and decrements of dependencies, in order of ``seq``.
        self._seqs = array("q")
        self._nodes = array("q")
        self._slots = array("q")
        self._values = array("q")
        self._before = array("q")
        """The one before that concerns the same node."""
        self._last = array("q")
        """The last one of each node."""
        self._held: dict[int, dict[int, int]] = {}
        """Bytes by slot, of nodes that have not ended."""
        self._live = 0
        self.live_seqs = array("q")
        self.live_times = array("q")
        self.live_totals = array("q")
        """Bytes in InputBuffers after each change of them."""

    @property
    def size(self) -> int:
        """Number of nodes; 0 where they are not known yet."""
        return len(self.dependencies)

    def describe(self, columns: Sequence[Sequence[int]]) -> None:
        """Take in what is known of the nodes before anything happens to them.

        Args:
            columns: sequence numbers, dependencies and whether they are recorded.
        """
        numbers, dependencies, recorded = columns
        self.sequence_nrs = array("q", numbers)
        self.dependencies = array("q", dependencies)
        self.left_out = frozenset(node for node, known in enumerate(recorded) if not known)
        size = self.size
        self.pushed, self.popped, self.started, self.ended = (
            array("q", [NEVER]) * size for _ in range(4)
        )
        self.outcome = bytearray(size)
        self.queues, self.threads, self.end_times = (array("q", [-1]) * size for _ in range(3))
        self._last = array("q", [-1]) * size

    def fill(self, columns: Sequence[Sequence[int]]) -> None:
        """Take in what happened to the nodes until the end of the recording.

        Args:
            columns: pushed, popped, started, ended, outcome, failed, queue, thread and time of the
                end, by node.
        """
        pushed, popped, started, ended, outcome, failed, queues, threads, end_times = columns
        self.pushed, self.popped = array("q", pushed), array("q", popped)
        self.started, self.ended = array("q", started), array("q", ended)
        self.outcome = bytearray(kind if kind in _OUTCOMES else SKIPPED for kind in outcome)
        self.queues, self.threads = array("q", queues), array("q", threads)
        self.end_times = array("q", end_times)
        self.failed = {node: seq for node, seq in enumerate(failed) if seq != NEVER}
        self.until = NEVER

    def happened(self, event: NodeEvent) -> None:
        """Take in the next event. Raises IndexError where there is no such node."""
        seq, t, thread, _, kind, node, queue, _ = event
        if not 0 <= node < self.size:
            raise IndexError(node)
        orders = self.orders
        if kind == PUSHED:
            self.pushed[node] = seq
            self.queues[node] = queue
            orders.pushed.setdefault(self.queues[node], Order()).add(seq, node)
        elif kind == POPPED:
            self.popped[node] = seq
            orders.popped.setdefault(self.queues[node], Order()).add(seq, node)
        elif kind == STARTED:
            self.started[node] = seq
            self.threads[node] = thread
            orders.started.add(seq, node)
        elif self.ended[node] == NEVER:
            self.ended[node] = seq
            self.outcome[node] = kind
            self.end_times[node] = t
            orders.ended.add(seq, node)
            if self.started[node] != NEVER:
                orders.through.append(seq)
            if kind == FINISHED:
                orders.done.append(seq)
        elif kind == FAILED:
            self.failed[node] = seq

    def arrive(self, events: Iterable[NodeEvent], until: int) -> None:
        """Take in what arrived at nodes up to an event, behind what happened to them up to it.

        Args:
            events: arrivals, decrements, findings and DependenciesComputed, in order.
            until: ``seq`` of the event.

        Raises:
            IndexError: there is no such node.
        """
        size, pushed, left_out = self.size, self.pushed, self.left_out
        ended = self.orders.ended
        end, last_end = ended.count(self.arrivals_until), ended.count(until)
        for seq, t, _, _, kind, node, slot, value in events:
            if kind == COMPUTED:
                self.computed = seq
                continue
            if not 0 <= node < size:
                raise IndexError(node)
            if kind == CHECKED:
                self.nonfinite.setdefault(node, seq)
                continue
            while end < last_end and ended.seqs[end] < seq:
                self._let_go(ended.nodes[end])
                end += 1
            self._before.append(self._last[node])
            self._last[node] = len(self._seqs)
            self._seqs.append(seq)
            self._nodes.append(node)
            self._values.append(value)
            self._slots.append(slot if kind == ACCUMULATED else _DECREMENT)
            if kind == ACCUMULATED and seq < pushed[node] and node not in left_out:
                slots = self._held.setdefault(node, {})
                self._change(seq, t, value - slots.get(slot, 0))
                slots[slot] = value
        for node in ended.nodes[end:last_end]:
            self._let_go(node)
        self.arrivals_until = until

    def _let_go(self, node: int) -> None:
        held = sum(self._held.pop(node, {}).values())
        self._change(self.ended[node], self.end_times[node], -held)

    def _change(self, seq: int, t: int, by: int) -> None:
        if by:
            self._live += by
            self.live_seqs.append(seq)
            self.live_times.append(t)
            self.live_totals.append(self._live)

    @property
    def orders(self) -> _Orders:
        """Nodes by moments."""
        if self._orders is None:
            self._orders = _Orders(self)
        return self._orders

    def checked(self, node: int, seq: int) -> int:
        """``node``. Raises IndexError where there is none of this index at that moment."""
        if not (0 <= node < self.size and self.computed <= seq):
            raise IndexError(node)
        return node

    def status(self, node: int, seq: int) -> NodeStatus:
        """How far a node has come."""
        if node in self.left_out:
            return NodeStatus.UNKNOWN
        if self.ended[node] <= seq:
            has_failed = self.failed.get(node, NEVER) <= seq
            return NodeStatus.FAILED if has_failed else _OUTCOMES[self.outcome[node]]
        if self.started[node] <= seq:
            return NodeStatus.RUNNING
        return NodeStatus.READY if self.pushed[node] <= seq else NodeStatus.WAITING

    def statuses(self, seq: int) -> list[NodeStatus]:
        """How far every node has come, by index; empty until the dependencies are computed."""
        if seq < self.computed:
            return []
        waiting, ready, running = NodeStatus.WAITING, NodeStatus.READY, NodeStatus.RUNNING
        found = [
            _OUTCOMES[outcome]
            if ended <= seq
            else running
            if started <= seq
            else ready
            if pushed <= seq
            else waiting
            for pushed, started, ended, outcome in zip(
                self.pushed, self.started, self.ended, self.outcome, strict=True
            )
        ]
        for node, failed in self.failed.items():
            if failed <= seq:
                found[node] = NodeStatus.FAILED
        for node in self.left_out:
            found[node] = NodeStatus.UNKNOWN
        return found

    def remaining(self, node: int, seq: int) -> int:
        """Number of dependencies a node still waits for; of one that is left out, those it had."""
        if node in self.left_out:
            return self.dependencies[node]
        if min(self.pushed[node], self.started[node], self.ended[node]) <= seq:
            return 0
        place = self._last[node]
        while place >= 0 and (self._seqs[place] > seq or self._slots[place] != _DECREMENT):
            place = self._before[place]
        return self._values[place] if place >= 0 else self.dependencies[node]

    def buffer(self, node: int, seq: int) -> dict[int, int]:
        """A node's InputBuffer: slots that hold a gradient, and their bytes."""
        if node in self.left_out or self.ended[node] <= seq or self.span.end_seq <= seq:
            return {}
        found: dict[int, int] = {}
        until = min(self.pushed[node] - 1, seq)
        place = self._last[node]
        while place >= 0:
            slot = self._slots[place]
            if self._seqs[place] <= until and slot != _DECREMENT and slot not in found:
                found[slot] = self._values[place]
            place = self._before[place]
        return dict(sorted(found.items()))

    def buffers(self, seq: int) -> dict[int, dict[int, int]]:
        """All InputBuffers that hold a gradient, by node: bytes by slot."""
        count = bisect_right(self._seqs, seq)
        found = {node: self.buffer(node, seq) for node in sorted({*self._nodes[:count]})}
        return {node: slots for node, slots in found.items() if slots}

    def live_bytes(self, seq: int) -> int:
        """Bytes of the gradients in InputBuffers, those of running nodes included."""
        if self.span.end_seq <= seq:
            return 0
        place = bisect_right(self.live_seqs, seq)
        return self.live_totals[place - 1] if place else 0

    def executed(self, seq: int) -> int:
        """Number of nodes that finished."""
        return bisect_right(self.orders.done, seq)

    def running(self, seq: int) -> list[tuple[int, int, int]]:
        """The nodes that threads are in: ``seq`` of NodeStarted, thread and node, in order."""
        if self.span.end_seq <= seq:
            return []
        started = self.orders.started
        place = started.count(seq)
        missing = place - bisect_right(self.orders.through, seq)
        found = []
        while missing > 0 and place > 0:
            place -= 1
            node = started.nodes[place]
            if self.ended[node] > seq:
                missing -= 1
                found.append((started.seqs[place], self.threads[node], node))
        return found[::-1]

    def queue_length(self, queue: int, seq: int) -> int:
        """Number of its nodes in one of the ReadyQueues."""
        if self.span.end_seq <= seq or queue not in self.orders.pushed:
            return 0
        popped = self.orders.popped.get(queue)
        return self.orders.pushed[queue].count(seq) - (popped.count(seq) if popped else 0)

    def stuck(self, queue: int, seq: int) -> int:
        """Number of its nodes in a ReadyQueue that never left it, as far as is known."""
        pushed, popped = self.orders.pushed.get(queue), self.orders.popped.get(queue)
        if pushed is None or (popped is not None and len(popped.seqs) == len(pushed.seqs)):
            return 0
        version = len(pushed.seqs) + (len(popped.seqs) if popped else 0)
        known = self._stuck.get(queue)
        if known is None or known[0] != version:
            left = self.popped
            pairs = zip(pushed.seqs, pushed.nodes, strict=True)
            known = version, [pushed_at for pushed_at, node in pairs if left[node] == NEVER]
            self._stuck[queue] = known
        return bisect_right(known[1], seq)
