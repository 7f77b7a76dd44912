"""Facts: everything a replayed state knows, as plain data that can be copied and packed.

Note [Keyframes]
A keyframe is :class:`Facts` packed into bytes: integers in columns, and a byte per node for how far
it has come, compressed; of long queues no more than that (Note [Long queues]). Where nodes leave a
long queue in an order that has nothing to do with their indices, the bytes are told as differences
from what the place of the queue in that order lets expect (:class:`_Guess`). Graph tasks that ended
stand together, and are looked at only where somebody asks for them (``ended.py``). Where a
recording is closed, keyframes are stored in the file at intervals such that seeking replays few
events (``replay.py``); a reader makes its own where there are none.
They are believed as little as the rest of a file: :func:`unpack` takes integers and nothing else,
at most :data:`MOST_BYTES` of them, and checks every index, so that a false keyframe gives false
facts but never an error outside this module.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.by_node import ByNode
from agviz.traces.ended import Ended, EndedTasks
from agviz.traces.graph_shape import GraphShape
from agviz.traces.heap_entry import SHUTDOWN, HeapEntry, QueuedTask, key
from agviz.traces.integers import LARGEST, differences, from_planes, planes
from agviz.traces.long_queue import LongQueue, Owner
from agviz.traces.task_heap import TaskHeap
from agviz_engine.events import CPU_QUEUE, NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Sequence

MOST_BYTES: Final = 32 * 2**20
"""Longest keyframe, unpacked."""

STATUSES: Final = 7
"""A node's status is one of 0 to 6: waiting, queued, running, done, skipped, failed; taken from its
queue but not started yet."""

_EACH_STATUS: Final = bytes(range(STATUSES))
_WAITING: Final = 0
_LEFT_OUT: Final = 8
"""Added to the status of a node that is left out, of a graph task that ended."""
_EACH_OF_ENDED: Final = bytes([*_EACH_STATUS, *(n + _LEFT_OUT for n in _EACH_STATUS)])
_WITHOUT_LEFT_OUT: Final = bytes(n & ~_LEFT_OUT for n in range(256))
_LEVEL: Final = 6
_QUEUED: Final = 1
_IS_QUEUED: Final = bytes(status == _QUEUED for status in range(256))
_LONG: Final = 1_024
"""A queue of more tasks is long."""
_MOST_NODES_PER_TASK: Final = 64
"""Of the graph, where only a byte per node says which are in the queue."""
_SAMPLES: Final = 1_000
"""Nodes that are looked at to see how far most have come."""
_LEAST_PER_PLACED: Final = 8
"""Tasks in a queue for each whose place is told."""


class GraphTaskFacts:
    """What is known of one graph task."""

    __slots__ = (
        "_load",
        "_shape",
        "cpu_queue",
        "depth",
        "ended",
        "executed",
        "further_slots",
        "left_out",
        "nonfinite",
        "parent",
        "remaining",
        "slot_0",
        "status",
        "thread",
    )

    def __init__(self, parent: int, depth: int, thread: int, cpu_queue: int) -> None:
        self.parent = parent
        self.depth = depth
        self.thread = thread
        self.cpu_queue = cpu_queue
        self.ended = False
        self.executed = 0
        self._shape = GraphShape((), ())
        self._load: Callable[[], GraphShape] | None = None
        self.left_out: Collection[int] = frozenset()
        """Those of the graph."""
        self.status = bytearray()
        self.remaining = ByNode()
        """Remaining dependencies, for waiting nodes that lost some."""
        self.slot_0 = ByNode()
        """Bytes of the gradient in slot 0 of the InputBuffer, by node: most nodes have no other."""
        self.further_slots: dict[int, dict[int, int]] = {}
        """The same for all other slots, by node and slot."""
        self.nonfinite: set[int] = set()

    @property
    def shape(self) -> GraphShape:
        """The graph, of none before the dependencies are computed."""
        if self._load is not None:
            self._shape, self._load = self._load(), None
        return self._shape

    @shape.setter
    def shape(self, shape: GraphShape) -> None:
        self._shape, self._load = shape, None
        self.left_out = shape.left_out

    def checked(self, node: int) -> int:
        """``node``. Raises IndexError where there is none of this index."""
        if not 0 <= node < len(self.status):
            raise IndexError(node)
        return node

    def copy(self) -> GraphTaskFacts:
        """A copy that shares nothing that changes."""
        twin = GraphTaskFacts(self.parent, self.depth, self.thread, self.cpu_queue)
        twin.ended = self.ended
        twin.executed = self.executed
        twin._shape, twin._load = self._shape, self._load
        twin.left_out = self.left_out
        twin.status = self.status[:]
        twin.remaining = self.remaining.copy()
        twin.slot_0 = self.slot_0.copy()
        twin.further_slots = {node: slots.copy() for node, slots in self.further_slots.items()}
        twin.nonfinite = self.nonfinite.copy()
        return twin

    def remaining_of(self, node: int) -> int:
        """Number of dependencies a node still waits for."""
        if self.status[self.checked(node)] != _WAITING:
            return 0
        if node in self.remaining:
            return self.remaining.get(node, 0)
        return self.shape.dependencies[node]

    def as_ended(self) -> Ended:
        """What is left of it once it has ended, which needs no graph."""
        status = bytearray(self.status)
        remaining = {}
        node = status.find(_WAITING)
        while node >= 0:
            remaining[node] = self.remaining_of(node)
            node = status.find(_WAITING, node + 1)
        for node in self.left_out:
            status[node] |= _LEFT_OUT
        return Ended(
            self.parent,
            self.depth,
            self.thread,
            self.cpu_queue,
            self.executed,
            bytes(status),
            remaining,
            sorted(self.nonfinite),
        )

    @classmethod
    def of_ended(cls, ended: Ended, load: Callable[[], GraphShape]) -> GraphTaskFacts:
        """What :meth:`as_ended` was taken from.

        Args:
            ended: from anywhere.
            load: gives the graph, where it is needed.
        """
        task = cls(*ended[:4])
        task.ended = True
        task.executed = ended.executed
        task.status = bytearray(ended.status.translate(_WITHOUT_LEFT_OUT))
        if max(ended.status, default=0) >= _LEFT_OUT:
            task.left_out = {n for n, status in enumerate(ended.status) if status >= _LEFT_OUT}
        task.remaining = ByNode(ended.remaining.items())
        task.nonfinite = set(ended.nonfinite)
        task._load = load
        return task


class Facts:
    """What the engine knew at one moment.

    Args:
        shape: gives the graph of a graph task whose dependencies have been computed.
    """

    __slots__ = (
        "ended",
        "graph_tasks",
        "heaps",
        "live_bytes",
        "looked_at",
        "running",
        "seq",
        "shape",
        "time_ns",
    )

    def __init__(self, shape: Callable[[int], GraphShape] | None = None) -> None:
        self.seq = -1
        """``seq`` of the last event, -1 at first."""
        self.time_ns = 0
        """Its time, 0 at first."""
        self.live_bytes = 0
        """Bytes of all gradients in InputBuffers."""
        self.shape = shape or _no_graph
        self.graph_tasks: dict[int, GraphTaskFacts] = {}
        """Those under way, and perhaps some that ended."""
        self.ended = EndedTasks()
        """The others that ended."""
        self.looked_at: dict[int, GraphTaskFacts] = {}
        """Some of those, as they were told."""
        self.heaps: dict[int, TaskHeap] = {}
        """By queue: a device index, or ``-1 - thread`` for the queue of a calling thread."""
        self.running: dict[int, list[QueuedTask]] = {}
        """By thread: the nodes it is in, innermost last."""

    def copy(self) -> Facts:
        """A copy that shares nothing that changes."""
        twin = Facts(self.shape)
        twin.ended = self.ended
        twin.seq = self.seq
        twin.time_ns = self.time_ns
        twin.live_bytes = self.live_bytes
        twin.graph_tasks = {number: task.copy() for number, task in self.graph_tasks.items()}
        twin.heaps = {queue: heap.copy() for queue, heap in self.heaps.items()}
        twin.running = {thread: tasks.copy() for thread, tasks in self.running.items()}
        return twin

    def __contains__(self, graph_task: int) -> bool:
        return graph_task in self.graph_tasks or graph_task in self.ended

    def known(self) -> list[int]:
        """All graph tasks; parents come before their children."""
        return sorted([*self.graph_tasks, *self.ended])

    @property
    def has_left_out(self) -> bool:
        """Whether some node is left out."""
        told = self.ended.status.translate(None, _EACH_STATUS)
        return bool(told) or any(task.left_out for task in self.graph_tasks.values())

    def look(self, graph_task: int) -> GraphTaskFacts:
        """What is known of a graph task, to be read only. Raises KeyError."""
        task = self.graph_tasks.get(graph_task) or self.looked_at.get(graph_task)
        if task is None:
            ended = self.ended[graph_task]
            load = partial(_graph_of, self.shape, graph_task, len(ended.status))
            task = self.looked_at[graph_task] = GraphTaskFacts.of_ended(ended, load)
        return task

    def task(self, graph_task: int) -> GraphTaskFacts:
        """The same, to be changed."""
        task = self.graph_tasks.get(graph_task)
        if task is None:
            task = self.graph_tasks[graph_task] = self.look(graph_task)
            self._keep_aside(self.ended.without({graph_task}))
        return task

    def settle(self) -> None:
        """Put what has ended aside."""
        ended = {n: task.as_ended() for n, task in self.graph_tasks.items() if task.ended}
        if ended:
            self._keep_aside(self.ended.with_(ended))
            for number in ended:
                del self.graph_tasks[number]

    def _keep_aside(self, ended: EndedTasks) -> None:
        self.ended, self.looked_at = ended, {}

    def forget(self, graph_tasks: Container[int]) -> None:
        """Drop some."""
        for number in [number for number in self.graph_tasks if number in graph_tasks]:
            del self.graph_tasks[number]
        self._keep_aside(self.ended.without(graph_tasks))


def _no_graph(graph_task: int) -> GraphShape:
    raise KeyError(graph_task)


def _graph_of(shape: Callable[[int], GraphShape], graph_task: int, size: int) -> GraphShape:
    """Where a file was told to hold another graph, or none: some graph of this size."""
    with suppress(KeyError):
        found = shape(graph_task)
        if len(found.dependencies) == size:
            return found
    return GraphShape.unknown(size)


def pack(facts: Facts, alone: Container[int] = ()) -> bytes:
    """Note [Keyframes].

    Args:
        facts: all of them.
        alone: graph tasks during which no other of the same depth is ever under way.

    Raises:
        OverflowError: a number has more than 64 bits.
    """
    facts.settle()
    longs = {
        queue: long
        for queue, heap in facts.heaps.items()
        if (long := _long_queue(facts, queue, heap, alone)) is not None
    }
    fronts = {long.graph_task: long.front for long in longs.values()}
    words = array("q")

    def put(numbers: Iterable[int]) -> None:
        column = array("q", numbers)
        words.append(len(column))
        words.extend(column)

    tail = []
    put((facts.seq, facts.time_ns, facts.live_bytes))
    columns, statuses = facts.ended.pack()
    for column in columns:
        put(column)
    tail.append(statuses)
    put(facts.graph_tasks)
    for number, task in facts.graph_tasks.items():
        put((task.parent, task.depth, task.thread, task.cpu_queue, task.executed))
        status = bytes(task.status)
        words.append(len(status))
        is_guessed = number in fronts and task.shape.is_scattered
        guess = _Guess.of(task, fronts[number]) if is_guessed else ()
        put(guess)
        tail.append(differences(status, task.shape.parted(*guess)) if guess else status)
        for by_node in (task.remaining, task.slot_0):
            count, packed = by_node.pack(status)
            tail.append(packed)
            words.append(count)
            if not count:
                put(by_node.numbers())
                put(by_node.numbers().values())
        put(task.further_slots)
        for slots in task.further_slots.values():
            put(slots)
            put(slots.values())
        put(sorted(task.nonfinite))
    put(facts.heaps)
    for queue, heap in facts.heaps.items():
        long = longs.get(queue)
        if long is None:
            put(())
            entries = heap.entries()
        else:
            put((long.graph_task, long.place))
            put(long.placed)
            entries = list(long.placed.values())
        owners = [tied.task.graph_task for _, tied in entries]
        put(owners[:1] if len(set(owners)) == 1 else owners)
        put([tied.task.node for _, tied in entries])
    put(facts.running)
    for tasks in facts.running.values():
        put(chain.from_iterable(tasks))
    return zlib.compress(b"".join([planes(words), *tail]), _LEVEL)


class _Guess(NamedTuple):
    """How far the nodes of a graph task may have come, who leave a queue by sequence number.

    Where the order of the nodes has nothing to do with that, it takes fewer bytes to tell what is
    different than to tell everything.
    """

    front: int
    """Sequence number of the first node in the queue."""
    gone: int
    """Status of most nodes before it."""
    others: int
    """Status of most other nodes."""
    leaves: int
    """Status of most AccumulateGrad nodes."""

    @classmethod
    def of(cls, task: GraphTaskFacts, front: int) -> _Guess:
        """A good one."""
        every = len(task.status) // _SAMPLES + 1
        sides = task.shape.parted(front, 0, 1, 2)
        counts = Counter(zip(sides[::every], task.status[::every], strict=True))
        usual = {side: status for (side, status), _ in reversed(counts.most_common())}
        return cls(front, *(usual.get(side, 0) for side in range(3)))


class _Long(NamedTuple):
    """What is kept of a queue in which most tasks are loose: Note [Long queues]."""

    graph_task: int
    """Of the loose ones."""
    place: int
    """Of the first of them in its pop order."""
    front: int
    """Sequence number of that, or one near it."""
    placed: dict[int, HeapEntry]
    """The others, by place."""


def _long_queue(facts: Facts, queue: int, heap: TaskHeap, alone: Container[int]) -> _Long | None:
    if len(heap) <= _LONG:
        return None
    number = _shallowest(facts, queue)
    if number is None or not _nothing_gets_below(facts, queue, number, alone):
        return None
    task = facts.graph_tasks[number]
    if len(heap) * _MOST_NODES_PER_TASK < len(task.status) or not task.shape.is_ordered:
        return None
    parted = heap.parted(key(task.depth, None), len(heap) // _LEAST_PER_PLACED)
    if parted is None:
        return None
    placed, first = parted
    queued = _queued(task, queue)
    inside = [tied.task.node for _, tied in placed.values() if tied.task.graph_task == number]
    loose = len(heap) - len(placed)
    if queued.count(1) != loose + len(inside) or not all(queued[node] for node in inside):
        return None
    front = min(task.shape.sequence_nrs[first[1].task.node] or 0, LARGEST - 1)
    return _Long(number, task.shape.place(first), front, placed)


def _shallowest(facts: Facts, queue: int) -> int | None:
    """Of the graph tasks that have nodes in a queue; None where it is not one alone."""
    own = sorted(
        (task.depth, number)
        for number, task in facts.graph_tasks.items()
        if (queue >= 0 or task.cpu_queue == queue) and 1 in _queued(task, queue)
    )
    if not own or (len(own) > 1 and own[0][0] == own[1][0]):
        return None
    return own[0][1]


def _nothing_gets_below(facts: Facts, queue: int, number: int, alone: Container[int]) -> bool:
    """Whether all that may be pushed goes before the loose tasks, or is one of them."""
    task = facts.graph_tasks[number]
    shallower = any(
        other.depth < task.depth and not other.ended for other in facts.graph_tasks.values()
    )
    if queue >= 0:
        return number in alone and not shallower
    # The calling thread is inside this graph task; only device threads push for others then.
    return not shallower or max(facts.heaps) < 0


def _queued(task: GraphTaskFacts, queue: int) -> bytes | bytearray:
    """By node: 1 for those in a queue."""
    return task.shape.in_queue(max(queue, CPU_QUEUE), task.status.translate(_IS_QUEUED))


def unpack(packed: bytes, shape: Callable[[int], GraphShape]) -> Facts:
    """What :func:`pack` was given.

    Args:
        packed: bytes from anywhere.
        shape: gives the graph of a graph task.

    Raises:
        ValueError: they are no keyframe, or not one of these graphs.
    """
    try:
        return _Unpacking(packed, shape).facts()
    except (zlib.error, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise ValueError("a keyframe is none") from error


class _Unpacking:
    """One call of :func:`unpack`."""

    def __init__(self, packed: bytes, shape: Callable[[int], GraphShape]) -> None:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(packed, MOST_BYTES)
        _require(unpacking.eof and not unpacking.unused_data)
        self._words, tail = from_planes(data)
        self._tail = memoryview(tail)
        self._place = 0
        self._shape = shape
        self._loose_nodes = 0
        """Bytes that long queues take; each needs one for each node of its graph."""

    def facts(self) -> Facts:
        facts = Facts(self._shape)
        facts.seq, facts.time_ns, facts.live_bytes = self._some(3)
        facts.ended, end = EndedTasks.unpack(self._column, self._tail)
        _require(not facts.ended.status.translate(None, _EACH_OF_ENDED))
        self._tail = self._tail[end:]
        numbers = self._column()
        for number in numbers:
            _require(number not in facts.ended)
            facts.graph_tasks[number] = self._graph_task(number)
        for queue in self._column():
            facts.heaps[queue] = self._heap(queue, facts)
        for thread in self._column():
            column = self._column()
            _require(len(column) % 2 == 0)
            tasks = list(map(QueuedTask, column[::2], column[1::2]))
            for task in tasks:
                facts.look(task.graph_task).checked(task.node)
            facts.running[thread] = tasks
        _require(self._place == len(self._words) and not self._tail)
        return facts

    def _graph_task(self, number: int) -> GraphTaskFacts:
        parent, depth, thread, cpu_queue, executed = self._some(5)
        task = GraphTaskFacts(parent, depth, thread, cpu_queue)
        task.executed = executed
        length = self._word()
        _require(0 <= length <= len(self._tail))
        guess = self._column()
        status = self._tail[:length]
        self._tail = self._tail[length:]
        if length:
            task.shape = self._shape(number)
            _require(len(task.shape.dependencies) == length)
            task.status = bytearray(self._guessed(task.shape, guess, status) if guess else status)
            _require(not task.status.translate(None, _EACH_STATUS))
        task.remaining = self._by_node(bytes(task.status))
        task.slot_0 = self._by_node(bytes(task.status))
        for node in self._nodes(length):
            column = self._column()
            task.further_slots[node] = dict(zip(column, self._column(), strict=True))
        task.nonfinite = set(self._nodes(length))
        return task

    def _guessed(self, shape: GraphShape, guess: Sequence[int], status: memoryview) -> bytes:
        front, *usual = guess
        _require(0 <= front < LARGEST and len(usual) == 3 and {*usual} <= {*_EACH_STATUS})
        return differences(status, shape.parted(front, *usual))

    def _heap(self, queue: int, facts: Facts) -> TaskHeap:
        long = self._column()
        if long:
            number, place = long
            return TaskHeap(long=self._loose(queue, number, place, facts))
        owners, nodes = self._column(), self._column()
        if len(nodes) > _LONG and len(owners) == 1 and owners[0] != NO_GRAPH_TASK:
            owner = facts.look(owners[0])
            _require(owner.status)
            return TaskHeap(long=LongQueue.listed(_owner(owners[0], owner), nodes))
        return TaskHeap(_entries(facts, owners, nodes))

    def _loose(self, queue: int, number: int, place: int, facts: Facts) -> LongQueue:
        task = facts.graph_tasks[number]
        places = self._column()
        entries = _entries(facts, self._column(), self._column())
        placed = dict(zip(places, entries, strict=True))
        _require(place >= 0 and len(placed) == len(places))
        owner = _owner(number, task)
        limit = key(owner.depth, None)
        self._loose_nodes += len(task.status)
        _require(self._loose_nodes <= MOST_BYTES)
        queued = bytearray(_queued(task, queue))
        for where, (least, tied) in placed.items():
            _require(where == 0 or (where > 0 and (where - 1) >> 1 in placed))
            _require(least <= limit)
            if tied.task.graph_task == number:
                _require(queued[tied.task.node])
                queued[tied.task.node] = 0
        return LongQueue.loose(owner, limit, queued, place, placed)

    def _by_node(self, status: bytes) -> ByNode:
        count = self._word()
        if count:
            found, end = ByNode.unpack(count, self._tail, status)
            self._tail = self._tail[end:]
            return found
        return ByNode(zip(self._nodes(len(status)), self._column(), strict=True))

    def _nodes(self, length: int) -> Sequence[int]:
        column = self._column()
        _require(not column or (min(column) >= 0 and max(column) < length))
        return column

    def _some(self, count: int) -> Sequence[int]:
        column = self._column()
        _require(len(column) == count)
        return column

    def _column(self) -> array[int]:
        begin = self._place + 1
        end = begin + self._word()
        _require(begin <= end <= len(self._words))
        self._place = end
        return self._words[begin:end]

    def _word(self) -> int:
        word = self._words[self._place]
        self._place += 1
        return word


def _owner(number: int, task: GraphTaskFacts) -> Owner:
    return Owner(number, task.depth, task.shape)


def _entries(facts: Facts, owners: Sequence[int], nodes: Sequence[int]) -> list[HeapEntry]:
    """Of nodes of a graph task each, or of the same one."""
    if len(owners) == 1:
        owners = [*owners] * len(nodes)
    entries = []
    for number, node in zip(owners, nodes, strict=True):
        if number == NO_GRAPH_TASK:
            entries.append(SHUTDOWN)
        else:
            task = facts.look(number)
            entries.append(task.shape.entry(number, task.depth, task.checked(node)))
    return entries


def _require(condition: object) -> None:
    if not condition:
        raise ValueError("a keyframe is none")
