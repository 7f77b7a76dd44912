"""Facts: everything a replayed state knows, as plain data that can be copied and packed.

Note [Keyframes]
A keyframe is :class:`Facts` packed into bytes: integers in columns, and a byte per node for how far
it has come, compressed; of long queues no more than that (Note [Long queues]). Where a recording is
closed, keyframes are stored in the file at intervals such that seeking replays few events
(``replay.py``); a reader makes its own where there are none.
They are believed as little as the rest of a file: :func:`unpack` takes integers and nothing else,
at most :data:`MOST_BYTES` of them, and checks every index, so that a false keyframe gives false
facts but never an error outside this module.

Note [Long queues]
In which order tasks leave a heap depends on where they stand in it only as far as their keys are
equal. Where no two nodes of a graph task have the same sequence number, AccumulateGrad apart, its
nodes in a queue are therefore unpacked in the order of their keys, wherever they stood. That is
exact for what is pushed later, too: sifting never asks which of several smaller keys it passes, so
the larger ones (AccumulateGrad, reentrant graph tasks) take the same places; and in the queue of a
calling thread nothing else has the depth of this graph task.
"""

from __future__ import annotations

import zlib
from array import array
from dataclasses import dataclass, field
from itertools import chain, compress
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agviz.traces.by_node import ByNode
from agviz.traces.integers import from_planes, planes
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

NO_NODE: Final = -1
MOST_BYTES: Final = 32 * 2**20
"""Longest keyframe, unpacked."""

STATUSES: Final = 7
"""A node's status is one of 0 to 6: waiting, queued, running, done, skipped, failed; taken from its
queue but not started yet."""

_EACH_STATUS: Final = bytes(range(STATUSES))
_ACCUMULATE_GRAD_SEQUENCE_NR: Final = 2**64 - 1
_LEVEL: Final = 6
_QUEUED: Final = 1
_IS_QUEUED: Final = bytes(status == _QUEUED for status in range(256))
_LONG: Final = 1_024
"""A queue of more tasks is long, if the graph has not too many nodes for each."""
_MOST_NODES_PER_TASK: Final = 64
_WORTH_A_STEP: Final = 32
"""Of fewer bytes a step of their own takes longer than one after the other."""


class QueuedTask(NamedTuple):
    """A NodeTask in a ReadyQueue."""

    graph_task: int
    node: int
    """-1 for a task without a node: a shutdown."""


class Tied:
    """A NodeTask as it stands behind its key in a heap: less than no other.

    ``heapq`` then sifts exactly as ``std::priority_queue`` does, so that ties (AccumulateGrad nodes
    all have the same sequence number) leave in torch's order.
    """

    __slots__ = ("task",)

    def __init__(self, task: QueuedTask) -> None:
        self.task = task

    def __lt__(self, _other: Tied) -> bool:
        return False


HeapEntry: TypeAlias = tuple[int, Tied]
"""Key and task: the smallest key is popped first."""

SHUTDOWN: Final[HeapEntry] = (-(1 << 200), Tied(QueuedTask(NO_GRAPH_TASK, NO_NODE)))
"""It leaves the queue before everything else."""


class _Permutation:
    """An order of the places of a string of bytes; most orders of nodes consist of few strides."""

    def __init__(self, places: Sequence[int]) -> None:
        self._strides = list(_strides(places))
        # An itemgetter of a single place would give no tuple.
        many = len(self._strides) > len(places) // _WORTH_A_STEP
        self._one_by_one = itemgetter(*places, 0) if many else None

    def of(self, string: bytes | bytearray) -> bytes:
        """The bytes in this order."""
        if self._one_by_one is not None:
            return bytes(self._one_by_one(string)[:-1])
        return b"".join([string[stride] for stride in self._strides])


def _strides(places: Sequence[int]) -> Iterator[slice]:
    begin = 0
    while begin < len(places):
        end = begin + 1
        by = places[end] - places[begin] if end < len(places) else 1
        while end < len(places) and places[end] - places[end - 1] == by:
            end += 1
        beyond = places[end - 1] + (1 if by > 0 else -1)
        yield slice(places[begin], None if beyond < 0 else beyond, by)
        begin = end


@dataclass(slots=True)
class GraphShape:
    """What of a graph its replay needs, each by node index."""

    sequence_nrs: Sequence[int | None]
    """None: AccumulateGrad."""
    dependencies: Sequence[int]
    left_out: frozenset[int] = frozenset()
    """Nodes of whose events the recording keeps none."""
    _unpacked: dict[int, HeapEntry] = field(default_factory=dict, repr=False)
    _is_ordered: bool | None = field(default=None, repr=False)
    _pop_order: tuple[list[HeapEntry], _Permutation] | None = field(default=None, repr=False)

    def entry(self, graph_task: int, depth: int, node: int) -> HeapEntry:
        """The NodeTask of a node as it stands in a heap: deeper ones first, then later-made ones.

        Args:
            graph_task: the one whose graph this is.
            depth: its reentrant depth.
            node: index of the node.
        """
        number = self.sequence_nrs[node]
        number = _ACCUMULATE_GRAD_SEQUENCE_NR if number is None else number
        return -((depth << 64) + number), Tied(QueuedTask(graph_task, node))

    def entries(self, graph_task: int, depth: int, nodes: Sequence[int]) -> list[HeapEntry]:
        """The same for many nodes; keyframes of a long queue share them."""
        known = self._unpacked
        for node in nodes:
            if node not in known:
                known[node] = self.entry(graph_task, depth, node)
        return list(map(known.__getitem__, nodes))

    @property
    def is_ordered(self) -> bool:
        """Whether all nodes but AccumulateGrad nodes have sequence numbers of their own."""
        if self._is_ordered is None:
            numbers = [
                n for n in self.sequence_nrs if n not in {None, _ACCUMULATE_GRAD_SEQUENCE_NR}
            ]
            self._is_ordered = len(set(numbers)) == len(numbers)
        return self._is_ordered

    def queued(self, graph_task: int, depth: int, status: bytearray) -> list[HeapEntry]:
        """The NodeTasks of all nodes that are in a queue, first to be popped first.

        Args:
            graph_task: the one whose graph this is.
            depth: its reentrant depth.
            status: of each node.
        """
        known = self._pop_order
        if known is None:
            everything = [self.entry(graph_task, depth, node) for node in range(len(status))]
            everything.sort()
            nodes = [tied.task.node for _, tied in everything]
            known = self._pop_order = everything, _Permutation(nodes)
        entries, permutation = known
        chosen = permutation.of(status.translate(_IS_QUEUED))
        if chosen.count(b"\0\1") > len(chosen) // _WORTH_A_STEP:
            return list(compress(entries, chosen))
        found: list[HeapEntry] = []
        begin = chosen.find(1)
        while begin >= 0:
            end = chosen.find(0, begin)
            end = len(chosen) if end < 0 else end
            found += entries[begin:end]
            begin = chosen.find(1, end)
        return found


class GraphTaskFacts:
    """What is known of one graph task."""

    __slots__ = (
        "cpu_queue",
        "depth",
        "ended",
        "executed",
        "further_slots",
        "nonfinite",
        "parent",
        "remaining",
        "shape",
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
        self.shape = GraphShape((), ())
        self.status = bytearray()
        self.remaining = ByNode()
        """Remaining dependencies, for waiting nodes that lost some."""
        self.slot_0 = ByNode()
        """Bytes of the gradient in slot 0 of the InputBuffer, by node: most nodes have no other."""
        self.further_slots: dict[int, dict[int, int]] = {}
        """The same for all other slots, by node and slot."""
        self.nonfinite: set[int] = set()

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
        twin.shape = self.shape
        twin.status = self.status[:]
        twin.remaining = self.remaining.copy()
        twin.slot_0 = self.slot_0.copy()
        twin.further_slots = {node: slots.copy() for node, slots in self.further_slots.items()}
        twin.nonfinite = self.nonfinite.copy()
        return twin


class Facts:
    """What the engine knew at one moment."""

    __slots__ = ("graph_tasks", "heaps", "live_bytes", "running", "seq", "time_ns")

    def __init__(self) -> None:
        self.seq = -1
        """``seq`` of the last event, -1 at first."""
        self.time_ns = 0
        """Its time, 0 at first."""
        self.live_bytes = 0
        """Bytes of all gradients in InputBuffers."""
        self.graph_tasks: dict[int, GraphTaskFacts] = {}
        self.heaps: dict[int, list[HeapEntry]] = {}
        """By queue: a device index, or ``-1 - thread`` for the queue of a calling thread."""
        self.running: dict[int, list[QueuedTask]] = {}
        """By thread: the nodes it is in, innermost last."""

    def copy(self) -> Facts:
        """A copy that shares nothing that changes."""
        twin = Facts()
        twin.seq = self.seq
        twin.time_ns = self.time_ns
        twin.live_bytes = self.live_bytes
        twin.graph_tasks = {number: task.copy() for number, task in self.graph_tasks.items()}
        twin.heaps = {queue: heap.copy() for queue, heap in self.heaps.items()}
        twin.running = {thread: tasks.copy() for thread, tasks in self.running.items()}
        return twin


def pack(facts: Facts) -> bytes:
    """Note [Keyframes]. Raises OverflowError where a number has more than 64 bits."""
    words = array("q")

    def put(numbers: Iterable[int]) -> None:
        column = array("q", numbers)
        words.append(len(column))
        words.extend(column)

    tail = []
    put((facts.seq, facts.time_ns, facts.live_bytes))
    put(facts.graph_tasks)
    for task in facts.graph_tasks.values():
        put((task.parent, task.depth, task.thread, task.cpu_queue, task.ended, task.executed))
        words.append(len(task.status))
        tail.append(bytes(task.status))
        for by_node in (task.remaining, task.slot_0):
            count, packed = by_node.pack(len(task.status))
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
        long = _long_queue(facts, queue, heap)
        put(() if long is None else (long,))
        if long is None:
            owners = [tied.task.graph_task for _, tied in heap]
            put(owners[:1] if len(set(owners)) == 1 else owners)
            put([tied.task.node for _, tied in heap])
    put(facts.running)
    for tasks in facts.running.values():
        put(chain.from_iterable(tasks))
    return zlib.compress(b"".join([planes(words), *tail]), _LEVEL)


def _long_queue(facts: Facts, queue: int, heap: list[HeapEntry]) -> int | None:
    """The graph task of a queue of which no more needs to be kept: Note [Long queues]."""
    if queue >= 0 or len(heap) <= _LONG:
        return None
    own = [task for task in facts.graph_tasks.items() if task[1].cpu_queue == queue]
    own = [(number, task) for number, task in own if _QUEUED in task.status]
    if len(own) != 1 or not own[0][1].shape.is_ordered:
        return None
    number, task = own[0]
    leaf, _ = GraphShape([None], [0]).entry(number, task.depth, 0)
    if heap[1][0] == leaf or heap[2][0] == leaf or heap[0] is SHUTDOWN:
        return None
    if len(heap) * _MOST_NODES_PER_TASK < len(task.status):
        return None
    return number if task.status.count(_QUEUED) == len(heap) else None


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

    def facts(self) -> Facts:
        facts = Facts()
        facts.seq, facts.time_ns, facts.live_bytes = self._some(3)
        numbers = self._column()
        for number in numbers:
            facts.graph_tasks[number] = self._graph_task(number)
        for queue in self._column():
            facts.heaps[queue] = self._heap(facts.graph_tasks)
        for thread in self._column():
            column = self._column()
            _require(len(column) % 2 == 0)
            tasks = list(map(QueuedTask, column[::2], column[1::2]))
            for task in tasks:
                facts.graph_tasks[task.graph_task].checked(task.node)
            facts.running[thread] = tasks
        _require(self._place == len(self._words) and not self._tail)
        return facts

    def _graph_task(self, number: int) -> GraphTaskFacts:
        parent, depth, thread, cpu_queue, ended, executed = self._some(6)
        task = GraphTaskFacts(parent, depth, thread, cpu_queue)
        task.ended = bool(ended)
        task.executed = executed
        length = self._word()
        _require(0 <= length <= len(self._tail))
        task.status = bytearray(self._tail[:length])
        self._tail = self._tail[length:]
        if length:
            task.shape = self._shape(number)
            _require(len(task.shape.dependencies) == length)
            _require(not task.status.translate(None, _EACH_STATUS))
        task.remaining = self._by_node(length)
        task.slot_0 = self._by_node(length)
        for node in self._nodes(length):
            column = self._column()
            task.further_slots[node] = dict(zip(column, self._column(), strict=True))
        task.nonfinite = set(self._nodes(length))
        return task

    def _heap(self, tasks: Mapping[int, GraphTaskFacts]) -> list[HeapEntry]:
        long = self._column()
        if long:
            (number,) = long
            task = tasks[number]
            return task.shape.queued(number, task.depth, task.status)
        owners = self._column()
        if len(owners) == 1 and owners[0] != NO_GRAPH_TASK:
            task = tasks[owners[0]]
            nodes = self._nodes(len(task.status))
            return task.shape.entries(owners[0], task.depth, nodes)
        heap = []
        for owner, node in zip(owners, self._column(), strict=True):
            if owner == NO_GRAPH_TASK:
                heap.append(SHUTDOWN)
            else:
                task = tasks[owner]
                heap.append(task.shape.entry(owner, task.depth, task.checked(node)))
        return heap

    def _by_node(self, length: int) -> ByNode:
        count = self._word()
        if count:
            found, end = ByNode.unpack(count, self._tail, length)
            self._tail = self._tail[end:]
            return found
        return ByNode(zip(self._nodes(length), self._column(), strict=True))

    def _nodes(self, length: int) -> Sequence[int]:
        column = self._column()
        _require(not column or (min(column) >= 0 and max(column) < length))
        return column

    def _some(self, count: int) -> Sequence[int]:
        column = self._column()
        _require(len(column) == count)
        return column

    def _column(self) -> Sequence[int]:
        begin = self._place + 1
        end = begin + self._word()
        _require(begin <= end <= len(self._words))
        self._place = end
        return self._words[begin:end]

    def _word(self) -> int:
        word = self._words[self._place]
        self._place += 1
        return word


def _require(condition: object) -> None:
    if not condition:
        raise ValueError("a keyframe is none")
