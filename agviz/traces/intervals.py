"""Intervals: between which events each node of a graph task was queued, ran, held gradients.

A moment is a ``seq``. What is asked about a moment is answered by comparing it with integers in
columns, so that a state anywhere costs no replay. Columns are filled from the table ``timeline`` of
a closed recording, or from the events of one that grows, which only ever adds later moments.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agviz.traces.rows import NodeStatus
from agviz.traces.schema import (
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
DECREMENT: Final = -1
"""In place of a slot: a dependency was decremented."""
NO_ARRIVAL: Final = -2
"""In place of a slot: NaN or infinities were found, or the dependencies were computed."""


Arrival: TypeAlias = tuple[int, ...]
"""What arrived at a node: ``seq``, time, node, slot of the InputBuffer and bytes in it; or in
place of the latter :data:`DECREMENT` and remaining dependencies; or :data:`NO_ARRIVAL`: NaN or
infinities were found in an output of the node or, of node -1, the dependencies were computed."""


class TaskSpan(NamedTuple):
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


class _Changes:
    """The sum of what came in at some moments."""

    __slots__ = ("_seqs", "_times", "_totals")

    def __init__(self) -> None:
        self._seqs, self._times, self._totals = array("q"), array("q"), array("q", [0])

    def add(self, seq: int, t: int, by: int) -> None:
        """More came in, later than all else."""
        self._seqs.append(seq)
        self._times.append(t)
        self._totals.append(self._totals[-1] + by)

    def total(self, seq: int) -> int:
        """The sum right after an event."""
        return self._totals[bisect_right(self._seqs, seq)]

    def between(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Moment, time and difference of each change between two events."""
        for place in range(bisect_left(self._seqs, first), bisect_right(self._seqs, last)):
            by = self._totals[place + 1] - self._totals[place]
            yield self._seqs[place], self._times[place], by


class MomentOrder:
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
        self.started = MomentOrder(of.started, _known(of.started))
        self.ended = MomentOrder(of.ended, _known(of.ended))
        ended = zip(self.ended.seqs, self.ended.nodes, strict=True)
        self.through = [seq for seq, node in ended if of.started[node] != NEVER]
        """``seq`` of the ends of nodes that had started."""
        ended = zip(self.ended.seqs, self.ended.nodes, strict=True)
        self.done = [seq for seq, node in ended if of.outcome[node] == FINISHED]
        """``seq`` of each NodeFinished."""


def _by_queue(column: array[int], queues: array[int]) -> dict[int, MomentOrder]:
    nodes: dict[int, list[int]] = {}
    for node in _known(column):
        nodes.setdefault(queues[node], []).append(node)
    return {queue: MomentOrder(column, own) for queue, own in nodes.items()}


def _known(column: array[int]) -> Iterator[int]:
    return compress(range(len(column)), map(NEVER.__ne__, column))


class Intervals:
    """The nodes of one graph task, in columns; moments that are not known are :data:`NEVER`.

    Args:
        span: when it was under way.
    """

    def __init__(self, span: TaskSpan) -> None:
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
        self._of_node: tuple[list[int], list[int]] = [], []
        """Their places by node, and where those of each node begin; made where asked for."""
        self._in_slot: dict[tuple[int, int], int] = {}
        """Bytes by node and slot."""
        self._held = array("q")
        """Bytes by node."""
        self._arrived = _Changes()
        """Bytes that arrived in InputBuffers, in all."""
        self._released = _Changes()
        """Bytes that were in those of nodes that ended, in all."""

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
        self._held = array("q", bytes(8 * size))

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

    def happened(self, seq: int, t: int, thread: int, kind: int, node: int, queue: int) -> None:
        """Take in the next event that moves a node on. Raises IndexError: there is no such node.

        Args:
            seq: of the row of the event.
            t: its time.
            thread: its thread.
            kind: of the row, one of :data:`agviz.traces.schema.MOVES`.
            node: the node.
            queue: that it was pushed into.
        """
        if not 0 <= node < self.size:
            raise IndexError(node)
        orders = self.orders
        if kind == PUSHED:
            self.pushed[node] = seq
            self.queues[node] = queue
            orders.pushed.setdefault(self.queues[node], MomentOrder()).add(seq, node)
        elif kind in {POPPED, STARTED}:
            self.popped[node] = seq
            orders.popped.setdefault(self.queues[node], MomentOrder()).add(seq, node)
            if kind == STARTED:
                self.started[node] = seq + 1
                self.threads[node] = thread
                orders.started.add(seq + 1, node)
        elif self.ended[node] == NEVER:
            seq += kind == FINISHED
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

    def arrive(self, arrivals: Sequence[Arrival], until: int) -> None:
        """Take in what arrived at nodes up to an event, behind what happened to them up to it.

        Args:
            arrivals: in order.
            until: ``seq`` of the event.

        Raises:
            IndexError: there is no such node.
        """
        own = [arrival for arrival in arrivals if arrival[3] != NO_ARRIVAL]
        if len(own) < len(arrivals):
            self._note_others(arrivals)
        if own:
            seqs, _, nodes, slots, values = zip(*own, strict=True)
            if not 0 <= min(nodes) <= max(nodes) < self.size:
                raise IndexError
            self._seqs.extend(seqs)
            self._nodes.extend(nodes)
            self._slots.extend(slots)
            self._values.extend(values)
            self._sum_up(own)
        ended = self.orders.ended
        for node in ended.nodes[ended.count(self.arrivals_until) : ended.count(until)]:
            if self._held[node]:
                self._released.add(self.ended[node], self.end_times[node], self._held[node])
        self.arrivals_until = until

    def _note_others(self, arrivals: Iterable[Arrival]) -> None:
        for seq, _, node, slot, _ in arrivals:
            if slot == NO_ARRIVAL and node < 0:
                self.computed = seq
            elif slot == NO_ARRIVAL:
                self.nonfinite.setdefault(node, seq)

    def _sum_up(self, arrivals: Iterable[Arrival]) -> None:
        in_slot, held, arrived, left_out = self._in_slot, self._held, self._arrived, self.left_out
        for seq, t, node, slot, value in arrivals:
            if slot != DECREMENT and node not in left_out:
                place = node, slot
                by = value - in_slot.get(place, 0)
                if by:
                    in_slot[place] = value
                    held[node] += by
                    arrived.add(seq, t, by)

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
        for place in reversed(self._arrivals_at(node, seq)):
            if self._slots[place] == DECREMENT:
                return self._values[place]
        return self.dependencies[node]

    def buffer(self, node: int, seq: int) -> dict[int, int]:
        """A node's InputBuffer: slots that hold a gradient, 0 first, and their bytes."""
        if node in self.left_out or self.ended[node] <= seq or self.span.end_seq <= seq:
            return {}
        found = {self._slots[place]: self._values[place] for place in self._arrivals_at(node, seq)}
        found.pop(DECREMENT, None)
        first = {0: found.pop(0)} if 0 in found else {}
        return first | found

    def _arrivals_at(self, node: int, seq: int) -> list[int]:
        """Places of what arrived at a node up to an event."""
        if (len(self._of_node[0]), len(self._of_node[1])) != (len(self._seqs), self.size + 1):
            places = sorted(range(len(self._nodes)), key=self._nodes.__getitem__)
            counts = Counter(self._nodes)
            ends = accumulate((counts[each] for each in range(self.size)), initial=0)
            self._of_node = places, list(ends)
        by_node, begins = self._of_node
        first, end = begins[node], begins[node + 1]
        return by_node[first : bisect_right(by_node, seq, first, end, key=self._seqs.__getitem__)]

    def buffers(self, seq: int) -> dict[int, dict[int, int]]:
        """All InputBuffers that hold a gradient, by node: bytes by slot."""
        count = bisect_right(self._seqs, seq)
        found = {node: self.buffer(node, seq) for node in sorted({*self._nodes[:count]})}
        return {node: slots for node, slots in found.items() if slots}

    def live_bytes(self, seq: int) -> int:
        """Bytes of the gradients in InputBuffers, those of running nodes included."""
        if self.span.end_seq <= seq:
            return 0
        return self._arrived.total(seq) - self._released.total(seq)

    def live_changes(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Moment, time and difference of each change of that between two events."""
        span = self.span
        until = min(last, span.end_seq - 1)
        arrived, released = (
            self._arrived.between(first, until),
            self._released.between(first, until),
        )
        yield from heapq.merge(arrived, ((seq, t, -by) for seq, t, by in released))
        left = self.live_bytes(span.end_seq - 1)
        if left and first <= span.end_seq <= last:
            yield span.end_seq, span.end_t, -left

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
