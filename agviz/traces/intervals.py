"""Intervals: between which events each node of a graph task was queued, ran, held gradients.

What is asked about a moment, a ``seq``, is answered by comparing it with integers in columns, so
that a state anywhere costs no replay. Those of a closed recording are in the table ``timeline``;
those of one that grows are filled from its events, which only ever add later moments. Moments in
columns count from the begin of the graph task.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from itertools import accumulate, chain, compress, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from agviz.traces.packed import pack, unpack
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
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence

    from agviz.errors import TraceError

NEVER: Final = 2**63 - 1
"""A ``seq`` after all others."""
NO_NUMBER: Final = -1
"""Sequence number of AccumulateGrad nodes in columns."""
_OUTCOMES: Final = {
    FINISHED: NodeStatus.DONE,
    FAILED: NodeStatus.FAILED,
    SKIPPED: NodeStatus.SKIPPED,
}
_NO_NODE: Final = "an event concerns a node that is not there"
_COLUMNS: Final = 31
"""In a blob."""
NO_DECREMENT: Final = -1
"""In place of remaining dependencies: the gradient is that of a root."""

Arrival: TypeAlias = tuple[int, int, int, int, int]
"""What arrived at a node: ``seq`` of the row, node, remaining dependencies, slot of the InputBuffer
and bytes in it; negative bytes: an undefined gradient, which only decrements."""


class TaskSpan(NamedTuple):
    """When a graph task was under way."""

    id: int
    parent: int
    depth: int
    thread: int
    begin_seq: int
    begin_t: int
    """Time since the start of the recording."""
    end_seq: int
    """:data:`NEVER`: it did not end."""
    end_t: int
    """0: it did not end."""
    last_seq: int
    """No node of it does anything after this event; where it failed, threads may go on."""
    nodes: int
    """0 until the dependencies are computed."""
    withdrawn: int = NEVER
    """``seq`` of InferenceWithdrawn: nothing is known of queues from there on."""

    def knows_queues(self, seq: int) -> bool:
        """Whether it is known which nodes are in queues."""
        return seq < self.withdrawn


class Moments(NamedTuple):
    """When a node was queued, ran and ended: ``seq`` of the events, None: not.

    Times are in ns since the start of the recording.
    """

    node: int
    pushed: int | None
    queue: int | None
    popped: int | None
    started: int | None
    ended: int | None
    """The first of NodeFinished, NodeFailed and NodeSkipped."""
    outcome: int | None
    """Its kind."""
    failed: int | None
    """NodeFailed of a node that had ended otherwise before."""
    thread: int | None
    start_t: int | None
    end_t: int | None


class NodeTimes(NamedTuple):
    """When the nodes of a graph task ran: a column for each fact, by index of the node."""

    starts: MutableSequence[int]
    """ns after the graph task began; meaningless where no thread took the node up."""
    durations: MutableSequence[int]
    """ns; 0 of a node that has not ended."""
    threads: MutableSequence[int]
    """Thread that took it up; -1: none did."""


class MomentOrder:
    """Nodes by the moment at which something happened to them.

    Args:
        of: whose nodes.
        column: the moments by node.
        nodes: in order.
    """

    __slots__ = ("_column", "_of", "nodes")

    def __init__(
        self, of: Intervals, column: Sequence[int], nodes: array[int] | None = None
    ) -> None:
        self._of, self._column = of, column
        self.nodes = array("q") if nodes is None else nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def count(self, seq: int) -> int:
        """Number of nodes to which it had happened right after an event.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        try:
            return bisect_right(self.nodes, self._of.moment(seq), key=self._column.__getitem__)
        except IndexError as error:
            raise self._of.damaged(_NO_NODE) from error

    def seq(self, place: int) -> int:
        """When it happened to the node at a place of the order; raises the same."""
        try:
            return self._of.span.begin_seq + self._column[self.nodes[place]]
        except IndexError as error:
            raise self._of.damaged(_NO_NODE) from error

    def until(self, seq: int) -> Iterator[tuple[int, int]]:
        """``seq`` and node up to an event, the last one first."""
        for place in range(self.count(seq) - 1, -1, -1):
            yield self.seq(place), self.nodes[place]

    def those(self, chosen: Iterable[object]) -> MomentOrder:
        """The nodes for which ``chosen`` is true; as many as there are here."""
        return MomentOrder(self._of, self._column, array("i", compress(self.nodes, chosen)))


class _Orders:
    """Nodes of a graph task by the moments at which they were pushed, popped and ended.

    Those that were pushed, popped and started: by the device index of the queue.
    """

    __slots__ = ("done", "ended", "popped", "pushed", "started", "through")

    def __init__(self, of: Intervals) -> None:
        self.pushed: dict[int, MomentOrder] = {}
        self.popped: dict[int, MomentOrder] = {}
        self.started: dict[int, MomentOrder] = {}
        self.ended = MomentOrder(of, of._ended)
        self.through = MomentOrder(of, of._ended)
        """Ends of nodes that had started."""
        self.done = MomentOrder(of, of._ended)
        """NodeFinished."""


class _Arrivals:
    """What arrived at nodes, in order of ``seq``, or by node where the recording was closed."""

    def __init__(self, damaged: Callable[[object], TraceError]) -> None:
        self._damaged = damaged
        self.moments = array("q")
        self.nodes = array("q")
        """Empty where they are by node."""
        self.remaining = array("q")
        self.slots = array("q")
        self.nbytes = array("q")
        self.counts: Sequence[int] | None = None
        """How many there are by node, where they are by node."""
        self.places: tuple[Sequence[int], Sequence[int]] = (), ()
        """See :meth:`by_node`."""

    def by_node(self, size: int) -> tuple[Sequence[int], Sequence[int]]:
        """Their places by node, and where those of each of ``size`` nodes begin among these."""
        known = self.places
        if (len(known[0]), len(known[1])) != (len(self.moments), size + 1):
            counts: Sequence[int] | None = self.counts
            places: Sequence[int] = range(len(self.moments))
            if counts is None:
                found = Counter(self.nodes)
                counts = [found[node] for node in range(size)]
                places = sorted(places, key=self.nodes.__getitem__)
            elif min(counts, default=0) < 0:
                raise self._damaged("an arrival is missing")
            known = self.places = places, array("q", accumulate(counts, initial=0))
        return known

    def at(self, node: int, size: int, moment: int) -> Sequence[int]:
        """Places of what arrived at a node up to a moment."""
        places, begins = self.by_node(size)
        first, end = begins[node], begins[node + 1]
        return places[
            first : bisect_right(places, moment, first, end, key=self.moments.__getitem__)
        ]


class Intervals:
    """The nodes of one graph task, in columns.

    Args:
        span: when it was under way.
        damaged: gives the error for a file whose contents make no sense.
    """

    def __init__(self, span: TaskSpan, damaged: Callable[[object], TraceError]) -> None:
        self.span = span
        self.damaged = damaged
        self.until = span.begin_seq - 1
        """Events up to here are in the columns."""
        self.computed = span.end_seq
        """``seq`` of DependenciesComputed; until it is known, of the end."""
        self.left_out: frozenset[int] = frozenset()
        """Nodes of whose events the recording keeps none."""
        self.failed: dict[int, int] = {}
        """``seq`` of NodeFailed of nodes that had finished before, by node."""
        self.nonfinite: dict[int, int] = {}
        """``seq`` of the first finding of NaN or infinities in an output, by node."""
        self._never = NEVER
        """In columns: a moment after all others."""
        self.sequence_nrs = array("q")
        self._dependencies = array("q")
        self._queues = array("q")
        """Device index of the queue that a node was pushed into; -1: that of a calling thread."""
        self.pushed = array("q")
        self._popped = array("q")
        self._ended = array("q")
        """Moments of the first NodeFinished, NodeFailed or NodeSkipped."""
        self._has_started = array("b")
        """1: NodeStarted follows QueuePop."""
        self._outcome = array("b")
        """Kind of the end."""
        self._threads = array("q")
        """Threads that took the nodes up, or skipped them; -1: none did."""
        self._start_times = array("q")
        """From the begin of the graph task on; of a node that was skipped, when that was."""
        self._durations = array("q")
        self._arrivals = _Arrivals(damaged)
        self._arrived_until = self.until
        self._in_slot: dict[tuple[int, int], int] = {}
        """Bytes by node and slot."""
        self._held = array("q")
        """Bytes by node."""
        self._live_moments = array("q")
        self._live_bytes = array("q")
        """Bytes in all InputBuffers after each of their changes."""
        self.orders = _Orders(self)
        """Nodes by moments."""
        self._stuck: dict[int, tuple[int, list[int]]] = {}
        """By queue: number of its pushes and pops, and the pushes of nodes that never left."""

    @property
    def times(self) -> NodeTimes:
        """When the nodes ran."""
        return NodeTimes(self._start_times, self._durations, self._threads)

    @property
    def size(self) -> int:
        """Number of nodes; 0 where they are not known yet."""
        return len(self._dependencies)

    def moment(self, seq: int) -> int:
        """An event as columns count it."""
        return min(seq - self.span.begin_seq, self._never - 1)

    def describe(self, columns: Sequence[Sequence[int]]) -> None:
        """Take in what is known of the nodes before anything happens to them.

        Args:
            columns: sequence numbers, dependencies and whether they are recorded.
        """
        numbers, dependencies, recorded = columns
        self.sequence_nrs = array("q", numbers)
        self._dependencies = array("q", dependencies)
        self.left_out = frozenset(node for node, known in enumerate(recorded) if not known)
        size = self.size
        never, none = array("q", [NEVER]) * size, array("q", [-1]) * size
        self.pushed, self._popped, self._ended = never[:], never[:], never
        self._queues, self._threads = none[:], none
        self._start_times, self._durations, self._held = (
            array("q", bytes(8 * size)) for _ in range(3)
        )
        self._has_started, self._outcome = array("b", bytes(size)), array("b", bytes(size))
        self.orders = _Orders(self)

    def fill(self, rows: Iterable[Sequence[int | None]]) -> None:
        """Take in all that happened to nodes until the end of the recording.

        Args:
            rows: :class:`Moments` of nodes, in any order.
        """
        begin, begin_t = self.span.begin_seq, self.span.begin_t
        size = self.size
        for row in rows:
            node, pushed, queue, popped, started, ended, outcome, failed, thread, *times = row
            if node is None or not 0 <= node < size:
                raise self.damaged(_NO_NODE)
            start_t, end_t = times
            if pushed is not None:
                self.pushed[node] = pushed - begin
                self._queues[node] = -1 if queue is None else queue
            if popped is not None:
                self._popped[node] = popped - begin
            if started is not None:
                self._has_started[node] = 1
                self._start_times[node] = (start_t or 0) - begin_t
            if ended is not None:
                self._ended[node] = ended - begin
                self._outcome[node] = SKIPPED if outcome is None else outcome
                self._ends_at(node, (end_t or 0) - begin_t)
            if failed is not None:
                self.failed[node] = failed
            if thread is not None:
                self._threads[node] = thread
        self.orders = self._put_in_order(
            self._by_queue(self.pushed), self._by_queue(self._popped), self._known(self._ended)
        )

    def _known(self, column: Sequence[int]) -> array[int]:
        """The nodes to which something happened, in order."""
        known = compress(range(len(column)), map(self._never.__ne__, column))
        return array("q", sorted(known, key=column.__getitem__))

    def _by_queue(self, column: Sequence[int]) -> dict[int, array[int]]:
        """The nodes to which something happened, in order, by queue."""
        found: dict[int, array[int]] = defaultdict(lambda: array("q"))
        for node in self._known(column):
            found[self._queues[node]].append(node)
        return found

    def _put_in_order(
        self, pushed: Mapping[int, array[int]], popped: Mapping[int, array[int]], ended: array[int]
    ) -> _Orders:
        """Orders of which the nodes are known."""
        orders = _Orders(self)
        orders.pushed = {q: MomentOrder(self, self.pushed, nodes) for q, nodes in pushed.items()}
        orders.popped = {q: MomentOrder(self, self._popped, nodes) for q, nodes in popped.items()}
        orders.ended = orders.done = orders.through = MomentOrder(self, self._ended, ended)
        orders.started = orders.popped
        if self._has_started.count(0):
            has_started = self._has_started.__getitem__
            orders.started = {
                queue: order.those(map(has_started, order.nodes))
                for queue, order in orders.popped.items()
            }
            orders.through = orders.ended.those(map(has_started, ended))
        if self._outcome.count(FINISHED) < len(ended):
            outcomes = map(self._outcome.__getitem__, ended)
            orders.done = orders.ended.those(map(FINISHED.__eq__, outcomes))
        return orders

    def pack(self) -> bytes:
        """All of that, as :meth:`unpack` reads it."""
        begin = self.span.begin_seq
        arrivals = self._arrivals
        moments = chain(self.pushed, self._popped, self._ended, arrivals.moments)
        never = max(filter(NEVER.__ne__, moments), default=0) + 2
        popped = self.orders.popped.values()
        in_order = [order.nodes for order in popped] == [self.orders.ended.nodes]
        columns: list[Sequence[int]] = [
            (never, self.computed - begin, in_order),
            sorted(self.left_out),
        ]
        for found in (self.failed, self.nonfinite):
            columns += [*found], [seq - begin for seq in found.values()]
        columns += self.sequence_nrs, self._dependencies, self._queues
        for column in (self.pushed, self._popped, self._ended):
            columns.append([never if moment == NEVER else moment for moment in column])
        columns += self._has_started, self._outcome, self._threads
        columns += self._start_times, self._durations
        for orders in (self.orders.pushed, self.orders.popped):
            columns += [*orders], [len(order) for order in orders.values()]
            columns.append([*chain.from_iterable(order.nodes for order in orders.values())])
        columns.append(() if in_order else self.orders.ended.nodes)
        places, begins = arrivals.by_node(self.size)
        columns.append([end - first for first, end in pairwise(begins)])
        for column in (arrivals.moments, arrivals.remaining, arrivals.slots, arrivals.nbytes):
            columns.append([column[place] for place in places])
        columns += self._live_moments, self._live_bytes
        return pack(columns)

    @classmethod
    def unpack(
        cls, span: TaskSpan, blob: bytes, damaged: Callable[[object], TraceError]
    ) -> Intervals:
        """What was packed. Raises TraceError: it was not."""
        found = cls(span, damaged)
        try:
            found._take_columns(unpack(blob, _COLUMNS))
        except (ValueError, IndexError, OverflowError) as error:
            raise damaged(error) from error
        found.until = NEVER
        return found

    def _take_columns(self, columns: list[Any]) -> None:
        """Raises ValueError, IndexError: they don't fit together."""
        begin = self.span.begin_seq
        (self._never, computed, in_order), left_out, *columns = columns
        self.computed = begin + computed
        self.left_out = frozenset(left_out)
        self.failed, self.nonfinite = (
            {node: begin + moment for node, moment in zip(nodes, moments, strict=True)}
            for nodes, moments in (columns[:2], columns[2:4])
        )
        of_nodes, columns = columns[4:15], columns[15:]
        self.sequence_nrs, self._dependencies, self._queues = of_nodes[:3]
        self.pushed, self._popped, self._ended = of_nodes[3:6]
        has_started, outcome, self._threads = of_nodes[6:9]
        self._has_started, self._outcome = array("b", has_started), array("b", outcome)
        self._start_times, self._durations = of_nodes[9:]
        if {*map(len, of_nodes), len(columns[7])} != {self.size}:
            raise ValueError("a node is missing")
        for node in chain(self.left_out, self.failed, self.nonfinite):
            self._checked(node)
        ended = columns[5] if in_order else columns[6]  # as where one thread takes from one queue
        self.orders = self._put_in_order(
            dict(_split(*columns[:3])), dict(_split(*columns[3:6])), ended
        )
        arrivals = self._arrivals
        arrivals.counts, *each = counts, *_ = columns[7:12]
        arrivals.moments, arrivals.remaining, arrivals.slots, arrivals.nbytes = each
        if {*map(len, each)} != {sum(counts)}:
            raise ValueError("an arrival is missing")
        self._live_moments, self._live_bytes = columns[12:]
        if len(self._live_moments) != len(self._live_bytes):
            raise ValueError("a change of live bytes is missing")

    def happened(self, seq: int, t: int, thread: int, kind: int, node: int, queue: int) -> None:
        """Take in the next event that moves a node on.

        Args:
            seq: of the row of the event.
            t: its time.
            thread: its thread.
            kind: of the row, one of :data:`agviz.traces.schema.MOVES`.
            node: the node.
            queue: that it was pushed into.

        Raises:
            agviz.errors.TraceError: there is no such node.
        """
        self._checked(node)
        orders, moment = self.orders, seq - self.span.begin_seq
        if kind == PUSHED:
            self.pushed[node] = moment
            self._queues[node] = queue
            orders.pushed.setdefault(queue, MomentOrder(self, self.pushed)).nodes.append(node)
        elif kind in {POPPED, STARTED}:
            self._popped[node] = moment
            queue = self._queues[node]
            orders.popped.setdefault(queue, MomentOrder(self, self._popped)).nodes.append(node)
            if kind == STARTED:
                self._has_started[node] = 1
                self._threads[node] = thread
                self._start_times[node] = t - self.span.begin_t
                started = orders.started.setdefault(queue, MomentOrder(self, self._popped))
                started.nodes.append(node)
        elif self._ended[node] == NEVER:
            self._ended[node] = moment + (kind == FINISHED)
            self._outcome[node] = kind
            self._ends_at(node, t - self.span.begin_t)
            orders.ended.nodes.append(node)
            if self._has_started[node]:
                orders.through.nodes.append(node)
            else:
                self._threads[node] = thread
            if kind == FINISHED:
                orders.done.nodes.append(node)
        elif kind == FAILED:
            self.failed[node] = seq

    def _ends_at(self, node: int, t: int) -> None:
        if self._has_started[node]:
            self._durations[node] = t - self._start_times[node]
        else:
            self._start_times[node] = t

    def arrive(self, arrivals: Sequence[Arrival], until: int) -> None:
        """Take in what arrived at nodes up to an event, behind what happened to them up to it.

        Args:
            arrivals: in order.
            until: ``seq`` of the event.

        Raises:
            agviz.errors.TraceError: there is no such node.
        """
        changes = [*self._held_by(arrivals)]
        begin, ended = self.span.begin_seq, self.orders.ended
        for place in range(ended.count(self._arrived_until), ended.count(until)):
            node = ended.nodes[place]
            if self._held[node]:
                changes.append((self._ended[node], -self._held[node]))
        total = self._live_bytes[-1] if self._live_bytes else 0
        for moment, by in sorted(changes):
            total += by
            self._live_moments.append(moment)
            self._live_bytes.append(total)
        of = self._arrivals
        for seq, node, remaining, slot, nbytes in arrivals:
            of.moments.append(seq - begin)
            of.nodes.append(node)
            of.remaining.append(remaining)
            of.slots.append(slot)
            of.nbytes.append(nbytes)
        self._arrived_until = until

    def _held_by(self, arrivals: Iterable[Arrival]) -> Iterator[tuple[int, int]]:
        """Moments at which gradients arrived, and by how many bytes InputBuffers grew."""
        begin = self.span.begin_seq
        for seq, node, remaining, slot, nbytes in arrivals:
            self._checked(node)
            if nbytes >= 0 and node not in self.left_out:
                by = nbytes - self._in_slot.get((node, slot), 0)
                if by:
                    self._in_slot[node, slot] = nbytes
                    self._held[node] += by
                    yield seq - begin + (remaining != NO_DECREMENT), by

    def _checked(self, node: int) -> int:
        if not 0 <= node < self.size:
            raise self.damaged(_NO_NODE)
        return node

    def checked(self, node: int, seq: int) -> int:
        """``node``. Raises IndexError where there is none of this index at that moment."""
        if not (0 <= node < self.size and self.computed <= seq):
            raise IndexError(node)
        return node

    def moments(self, node: int) -> Moments:
        """When a node was queued, ran and ended; raises IndexError where there is none."""
        begin, begin_t = self.span.begin_seq, self.span.begin_t
        pushed, popped, ended = self.pushed[node], self._popped[node], self._ended[node]
        has_ended, has_started = ended != self._never, bool(self._has_started[node])
        was_pushed = pushed != self._never
        was_popped = popped != self._never
        return Moments(
            node,
            begin + pushed if was_pushed else None,
            self._queues[node] if was_pushed else None,
            begin + popped if was_popped else None,
            begin + popped + 1 if has_started else None,
            begin + ended if has_ended else None,
            self._outcome[node] if has_ended else None,
            self.failed.get(node),
            self._threads[node] if has_started or has_ended else None,
            begin_t + self._start_times[node] if has_started else None,
            begin_t + self._start_times[node] + self._durations[node] if has_ended else None,
        )

    def status(self, node: int, seq: int) -> NodeStatus:
        """How far a node has come."""
        at = self.moment(seq)
        if node in self.left_out:
            return NodeStatus.UNKNOWN
        if self._ended[node] <= at:
            has_failed = self.failed.get(node, NEVER) <= seq
            return NodeStatus.FAILED if has_failed else self._outcome_of(node)
        if self._has_started[node] and self._popped[node] < at:
            return NodeStatus.RUNNING
        if self.span.withdrawn <= seq < self.span.end_seq:
            return NodeStatus.UNKNOWN
        return NodeStatus.READY if self.pushed[node] <= at else NodeStatus.WAITING

    def _outcome_of(self, node: int) -> NodeStatus:
        return _OUTCOMES.get(self._outcome[node], NodeStatus.SKIPPED)

    def statuses(self, seq: int) -> list[NodeStatus]:
        """How far every node has come, by index; empty until the dependencies are computed."""
        if seq < self.computed:
            return []
        at = self.moment(seq)
        waiting, ready, running = NodeStatus.WAITING, NodeStatus.READY, NodeStatus.RUNNING
        if self.span.withdrawn <= seq < self.span.end_seq:
            waiting = ready = NodeStatus.UNKNOWN
        outcomes, skipped = _OUTCOMES.get, NodeStatus.SKIPPED
        found = [
            outcomes(outcome, skipped)
            if ended <= at
            else running
            if has_started and popped < at
            else ready
            if pushed <= at
            else waiting
            for pushed, popped, has_started, ended, outcome in zip(
                self.pushed,
                self._popped,
                self._has_started,
                self._ended,
                self._outcome,
                strict=True,
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
        at = self.moment(seq)
        if node in self.left_out:
            return self._dependencies[node]
        if min(self.pushed[node], self._ended[node]) <= at:
            return 0
        if self._has_started[node] and self._popped[node] < at:
            return 0
        remaining = self._arrivals.remaining
        for place in reversed(self._arrivals.at(node, self.size, at)):
            if remaining[place] != NO_DECREMENT:
                return remaining[place]
        return self._dependencies[node]

    def buffer(self, node: int, seq: int) -> dict[int, int]:
        """A node's InputBuffer: slots that hold a gradient, 0 first, and their bytes."""
        at = self.moment(seq)
        if node in self.left_out or self._ended[node] <= at or self.span.end_seq <= seq:
            return {}
        found = {}
        of = self._arrivals
        for place in of.at(node, self.size, at):
            is_later = of.remaining[place] != NO_DECREMENT and of.moments[place] == at
            if of.nbytes[place] >= 0 and not is_later:
                found[of.slots[place]] = of.nbytes[place]
        first = {0: found.pop(0)} if 0 in found else {}
        return first | found

    def arrivals(self, node: int) -> list[int]:
        """``seq`` of the rows of what arrived at a node."""
        begin, moments = self.span.begin_seq, self._arrivals.moments
        return [begin + moments[place] for place in self._arrivals.at(node, self.size, NEVER)]

    def gradients(self, node: int) -> list[tuple[int, int, int]]:
        """``seq``, slot and bytes of the gradients that arrived at a node."""
        of, begin = self._arrivals, self.span.begin_seq
        return [
            (
                begin + of.moments[place] + (of.remaining[place] != NO_DECREMENT),
                of.slots[place],
                of.nbytes[place],
            )
            for place in of.at(node, self.size, NEVER)
            if of.nbytes[place] >= 0
        ]

    def buffers(self, seq: int) -> dict[int, dict[int, int]]:
        """All InputBuffers that hold a gradient, by node: bytes by slot."""
        at = self.moment(seq)
        places, begins = self._arrivals.by_node(self.size)
        moments = self._arrivals.moments
        found = {
            node: self.buffer(node, seq)
            for node, (first, end) in enumerate(pairwise(begins))
            if first < end and moments[places[first]] <= at < self._ended[node]
        }
        return {node: slots for node, slots in found.items() if slots}

    def live_bytes(self, seq: int) -> int:
        """Bytes of the gradients in InputBuffers, those of running nodes included."""
        place = bisect_right(self._live_moments, self.moment(seq))
        return 0 if self.span.end_seq <= seq or not place else self._live_bytes[place - 1]

    def live_changes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """``seq`` of each change of that between two events, and the bytes after it."""
        begin, end = self.span.begin_seq, self.span.end_seq
        low = bisect_left(self._live_moments, self.moment(first))
        high = bisect_right(self._live_moments, self.moment(min(last, end - 1)))
        for place in range(low, high):
            yield begin + self._live_moments[place], self._live_bytes[place]
        if first <= end <= last and self.live_bytes(end - 1):
            yield end, 0

    def executed(self, seq: int) -> int:
        """Number of nodes that finished."""
        return self.orders.done.count(seq)

    def running(self, seq: int) -> list[tuple[int, int, int]]:
        """The nodes that threads are in: ``seq`` of NodeStarted, thread and node, in order."""
        if self.span.end_seq <= seq:
            return []
        orders, at = [*self.orders.started.values()], self.moment(seq)
        missing = sum(order.count(seq - 1) for order in orders) - self.orders.through.count(seq)
        found: list[tuple[int, int, int]] = []
        latest = heapq.merge(*(order.until(seq - 1) for order in orders), reverse=True)
        for popped, node in latest:
            if len(found) >= missing:
                break
            if self._ended[node] > at:
                found.append((popped + 1, self._threads[node], node))
        return found[::-1]

    def queue_length(self, queue: int, seq: int) -> int:
        """Number of its nodes in one of the ReadyQueues."""
        if self.span.end_seq <= seq or queue not in self.orders.pushed:
            return 0
        if not self.span.knows_queues(seq):
            return 0
        popped = self.orders.popped.get(queue)
        length = self.orders.pushed[queue].count(seq) - (popped.count(seq) if popped else 0)
        return max(length, 0)  # or else a false file would make it negative

    def stuck(self, queue: int, seq: int) -> int:
        """Number of its nodes in a ReadyQueue that never left it, as far as is known."""
        pushed, popped = self.orders.pushed.get(queue), self.orders.popped.get(queue)
        if pushed is None or (popped is not None and len(popped) == len(pushed)):
            return 0
        version = len(pushed) + (len(popped) if popped else 0)
        known = self._stuck.get(queue)
        if known is None or known[0] != version:
            known = self._stuck[queue] = version, [*self._never_left(pushed.nodes)]
        return bisect_right(known[1], self.moment(seq))

    def _never_left(self, nodes: Iterable[int]) -> Iterator[int]:
        """When those of some nodes were pushed that were never popped."""
        try:
            for node in nodes:
                if self._popped[node] == self._never:
                    yield self.pushed[node]
        except IndexError as error:
            raise self.damaged(_NO_NODE) from error


def _split(
    keys: Sequence[int], lengths: Sequence[int], column: array[int]
) -> Iterator[tuple[int, array[int]]]:
    """The parts of a column by key. Raises ValueError where the lengths are not theirs."""
    if min(lengths, default=0) < 0 or sum(lengths) != len(column):
        raise ValueError("a queue is of the wrong length")
    ends = accumulate(lengths)
    for key, length, end in zip(keys, lengths, ends, strict=True):
        yield key, column[end - length : end]
