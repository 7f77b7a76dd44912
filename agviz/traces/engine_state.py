"""EngineState: what the engine knew right after an event, found by comparing moments."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, overload

from agviz.traces.intervals import NEVER, NO_NUMBER, Intervals
from agviz.traces.rows import NodeStatus, QueueContents, QueuedTask
from agviz.traces.task_heap import TaskHeap, priority
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class _Leaving(NamedTuple):
    """A NodeTask in a queue that left it later."""

    seq: int
    """When it left."""
    key: int
    """Its priority."""
    task: QueuedTask


class PopOrder(Sequence[QueuedTask]):
    """The tasks of a queue in the order in which they would be popped, found as far as asked for.

    That is the order in which they left later, but where tasks tie and others came in between,
    where some never left, or where nodes were left out: then the queue is replayed. A queue may
    hold as many tasks as the graph has nodes, and its readers see a few of them.

    Args:
        length: number of tasks.
        leaving: those that left later, in order.
        next_push: ``seq`` of the next push into the queue.
        replay: gives all tasks in order.
    """

    def __init__(
        self,
        length: int,
        leaving: Iterator[_Leaving],
        next_push: int,
        replay: Callable[[], list[QueuedTask]],
    ) -> None:
        self._length = length
        self._leaving = leaving
        self._ahead = next(leaving, None)
        self._next_push = next_push
        self._replay = replay
        self._known: list[QueuedTask] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> QueuedTask: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[QueuedTask, ...]: ...
    def __getitem__(self, place: int | slice) -> QueuedTask | tuple[QueuedTask, ...]:
        if isinstance(place, slice):
            return tuple(self[index] for index in range(self._length)[place])
        place = range(self._length)[place]
        with self._lock:
            while len(self._known) <= place:
                self._read_on()
        return self._known[place]

    def _read_on(self) -> None:
        """Find the next tasks that tie, or else all."""
        tied: list[_Leaving] = []
        while self._ahead is not None and (not tied or self._ahead.key == tied[0].key):
            tied.append(self._ahead)
            self._ahead = next(self._leaving, None)
        is_certain = len(tied) == 1 or (len(tied) > 1 and tied[-2].seq < self._next_push)
        if is_certain and (self._ahead is None or tied[0].key < self._ahead.key):
            self._known += [each.task for each in tied]
        else:
            self._known = self._replay()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PopOrder({list(self)})"


class QueueReplay:
    """Replays the pushes and pops of one ReadyQueue, forwards from where it was last."""

    def __init__(self) -> None:
        self._heap = TaskHeap()
        self._seq = -1
        self._lock = threading.Lock()

    def order_at(self, seq: int, tasks: Iterable[Intervals], queue: int) -> list[QueuedTask]:
        """The tasks in the queue right after an event, in the order of pops.

        Args:
            seq: of the event.
            tasks: graph tasks that use the queue.
            queue: how they call it.
        """
        with self._lock:
            if seq < self._seq:
                self._heap, self._seq = TaskHeap(), -1
            for _, is_push, of, node in self._steps(seq, tasks, queue):
                task = QueuedTask(of.span.id, node)
                if is_push:
                    self._heap.push(_key(of, node), task)
                elif node < 0:
                    self._heap.drop(of.span.id)
                else:
                    self._heap.remove(task)
            self._seq = seq
            return self._heap.order()

    def _steps(
        self, seq: int, tasks: Iterable[Intervals], queue: int
    ) -> list[tuple[int, bool, Intervals, int]]:
        """What happened since; a node of -1: all that a graph task left behind is dropped."""
        found = []
        for of in tasks:
            orders = of.orders
            for is_push, by_queue in ((True, orders.pushed), (False, orders.popped)):
                if queue in by_queue:
                    order, until = by_queue[queue], min(seq, of.span.withdrawn)
                    places = range(order.count(min(self._seq, until)), order.count(until))
                    found += [(order.seq(n), is_push, of, order.nodes[n]) for n in places]
            for gone in {of.span.withdrawn, of.span.end_seq}:
                if self._seq < gone <= seq:
                    found.append((gone, False, of, -1))
        return sorted(found, key=lambda step: step[0])


def _key(of: Intervals, node: int) -> int:
    number = of.sequence_nrs[node]
    return priority(of.span.depth, None if number == NO_NUMBER else number)


class EngineState:
    """What the engine knew right after an event.

    It covers all graph tasks under way, and of those that ended the last ones of each calling
    thread. Methods that take a graph task and a node raise KeyError or IndexError for others.
    All that they need was read from the file: any thread may ask.

    Args:
        seq: of the event.
        time_ns: its time.
        known: the graph tasks that it covers, with the outermost one of each; parents come before
            their children.
        replays: of queues, to go on with.
        next_begin: ``seq`` of the next GraphTaskBegun.
    """

    def __init__(
        self,
        seq: int,
        time_ns: int,
        known: dict[int, tuple[Intervals, Intervals]],
        replays: dict[int, QueueReplay],
        next_begin: int,
    ) -> None:
        self.seq = seq
        """``seq`` of the event; that before the first of a recording: -1 or less."""
        self.time_ns = time_ns
        """Its time; 0 before the first event."""
        self._known = known
        self._replays = replays
        self._next_begin = next_begin
        self._under_way = [task for task, _ in known.values() if seq < task.span.end_seq]

    @property
    def graph_tasks(self) -> tuple[int, ...]:
        """The graph tasks this state covers."""
        return tuple(self._known)

    def _task(self, graph_task: int) -> Intervals:
        return self._known[graph_task][0]

    def status(self, graph_task: int, node: int) -> NodeStatus:
        """How far a node has come; UNKNOWN where that was left out or can't be inferred."""
        task = self._task(graph_task)
        return task.status(task.checked(node, self.seq), self.seq)

    def statuses(self, graph_task: int) -> list[NodeStatus]:
        """How far every node has come, by index; empty until the dependencies are computed."""
        return self._task(graph_task).statuses(self.seq)

    @property
    def knows_all(self) -> bool:
        """False where events of some node were left out of the recording.

        Queues, buffers, running nodes and :attr:`live_bytes` are then those of the other nodes
        only: more may be there.
        """
        return not any(
            task.left_out and task.computed <= self.seq for task, _ in self._known.values()
        )

    def remaining(self, graph_task: int, node: int) -> int:
        """Number of dependencies a node still waits for; of one that is left out, those it had."""
        task = self._task(graph_task)
        return task.remaining(task.checked(node, self.seq), self.seq)

    def is_nonfinite(self, graph_task: int, node: int) -> bool:
        """Whether a non-finite element was found in an output of the node."""
        return self._task(graph_task).nonfinite.get(node, NEVER) <= self.seq

    def nonfinite(self, graph_task: int) -> frozenset[int]:
        """The nodes of which that is so."""
        found = self._task(graph_task).nonfinite
        return frozenset(node for node, seq in found.items() if seq <= self.seq)

    def sequence_nr(self, graph_task: int, node: int) -> int | None:
        """The sequence number by which a queue orders a node; None: AccumulateGrad."""
        task = self._task(graph_task)
        number = task.sequence_nrs[task.checked(node, self.seq)]
        return None if number == NO_NUMBER else number

    def depth(self, graph_task: int) -> int:
        """How many calls of backward a graph task is inside of; its nodes go before shallower."""
        return self._task(graph_task).span.depth

    def buffer(self, graph_task: int, node: int) -> dict[int, int]:
        """The node's InputBuffer: slots that hold a gradient, and their bytes."""
        task = self._task(graph_task)
        return task.buffer(task.checked(node, self.seq), self.seq)

    def buffers(self, graph_task: int) -> dict[int, dict[int, int]]:
        """All InputBuffers of a graph task that hold a gradient, by node: bytes by slot."""
        return self._task(graph_task).buffers(self.seq)

    def queues(self) -> list[QueueContents]:
        """The ReadyQueues of these graph tasks, callers' queues first."""
        users: dict[int, list[Intervals]] = {}
        for task, root in self._known.values():
            users.setdefault(-1 - root.span.thread, []).append(task)
            for device, order in task.orders.pushed.items():
                if device != CPU_QUEUE and order.count(self.seq):
                    users.setdefault(device, []).append(task)
        return [
            QueueContents(
                max(queue, CPU_QUEUE),
                -1 - queue if queue < 0 else None,
                self._pop_order(queue, tasks),
                all(
                    task.span.knows_queues(self.seq)
                    for task in tasks
                    if self.seq < task.span.end_seq
                ),
            )
            for queue, tasks in sorted(users.items())
        ]

    def _pop_order(self, queue: int, users: list[Intervals]) -> PopOrder:
        name = max(queue, CPU_QUEUE)
        under_way = [task for task in users if self.seq < task.span.end_seq]
        length = sum(task.queue_length(name, self.seq) for task in under_way)
        # Of nodes that are left out it is not known how they were among others that tie.
        is_uncertain = any(
            task.left_out or task.stuck(name, self.seq) or task.span.withdrawn < NEVER
            for task in under_way
        )
        each = [_leaving(task, name, self.seq) for task in under_way]
        leaving = heapq.merge(*each) if len(each) > 1 else each[0] if each else iter(())
        replay = self._replays.setdefault(queue, QueueReplay())
        return PopOrder(
            length,
            # Behind the last of them, all nodes would be looked through for more: 20 ms of 110,000.
            iter(()) if is_uncertain else islice(leaving, length),
            min(self._next_begin, *(_next_push(task, name, self.seq) for task in users)),
            lambda: replay.order_at(self.seq, users, name),
        )

    def running(self) -> dict[int, tuple[QueuedTask, ...]]:
        """For every thread inside a node: the nodes it is in, innermost (reentrant) last."""
        found: dict[int, list[QueuedTask]] = {}
        every = [
            (*each, task.span.id) for task in self._under_way for each in task.running(self.seq)
        ]
        for _, thread, node, graph_task in sorted(every):
            found.setdefault(thread, []).append(QueuedTask(graph_task, node))
        return {thread: tuple(found[thread]) for thread in sorted(found)}

    def executed(self, graph_task: int) -> int:
        """Number of nodes that finished."""
        return self._task(graph_task).executed(self.seq)

    @property
    def live_bytes(self) -> int:
        """Bytes of the gradients in InputBuffers, those of running nodes included."""
        return sum(task.live_bytes(self.seq) for task in self._under_way)


def _leaving(of: Intervals, queue: int, seq: int) -> Iterator[_Leaving]:
    """The tasks of a graph task that left a queue after an event that they were there at."""
    order = of.orders.popped.get(queue)
    if order is not None:
        pushed, number, at = of.pushed, of.span.id, of.moment(seq)
        for place in range(order.count(seq), len(order)):
            left, node = order.seq(place), order.nodes[place]
            if pushed[node] <= at:
                yield _Leaving(left, _key(of, node), QueuedTask(number, node))


def _next_push(of: Intervals, queue: int, seq: int) -> int:
    order = of.orders.pushed.get(queue)
    place = NEVER if order is None else order.count(seq)
    return NEVER if order is None or place == len(order) else order.seq(place)
