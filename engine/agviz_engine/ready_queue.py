"""NodeTask and ReadyQueue, and the order in which tasks leave it (torch's ``engine.h``)."""

from __future__ import annotations

import contextlib
import threading
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from agviz_engine.emissions import ABSENT, PUSH, TOOK, clock, next_seq

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from agviz_engine.input_buffer import InputBuffer
    from agviz_engine.node import NodeRef

_INFINITY = float("inf")
_SHUTDOWN = -2
_EMPTY = -1


class _Base(Protocol):
    """All that a queue needs of a graph task, which has such queues itself."""

    id: int
    reentrant_depth: int


Base = TypeVar("Base", bound=_Base)
"""GraphTask, whose file imports this one for the type of ``cpu_ready_queue``."""


class NodeTask(Generic[Base]):
    """A node of a graph task whose inputs are complete (``struct NodeTask``).

    A task without ``node`` only wakes the queue's thread; a task without ``base`` is the shutdown
    task, which ends a device thread.
    """

    __slots__ = ("base", "inputs", "node", "row")

    def __init__(self, base: Base | None, node: NodeRef | None, inputs: InputBuffer | None) -> None:
        self.base = base
        self.node = node
        self.inputs = inputs
        self.row: tuple[int, ...] | None = None
        """``TOOK`` of its leaving the queue; None: nobody observes that, or it was emitted."""

    def __lt__(self, _other: NodeTask[Base]) -> bool:
        """Tasks with equal keys are not less than each other, see :class:`ReadyQueue`."""
        return False

    @property
    def is_shutdown_task(self) -> bool:
        """Whether the thread that takes this task has to end."""
        return self.base is None


_Entry: TypeAlias = tuple[int, int, int, NodeTask[Base]]
"""A task behind what orders it; the least is the first."""


def _entry(task: NodeTask[Base]) -> _Entry[Base]:
    base, node = task.base, task.node
    if base is None:
        return _SHUTDOWN, 0, 0, task
    if node is None:
        return _EMPTY, 0, 0, task
    return 0, -base.reentrant_depth, -node.sequence_nr, task


QueueState: TypeAlias = tuple[tuple[_Entry[Base], ...], "NodeTask[Base] | None"]
"""What is in a queue, and which of it is preferred."""


class ReadyQueue(Generic[Base]):
    """A priority queue of tasks that one thread, and the reentrant calls on it, work off.

    The order is that of ``CompareNodeTaskTime``: shutdown, then empty, then deeper, then later-made
    first. ``heapq`` and ``std::priority_queue`` sift alike, so that ties (all AccumulateGrad nodes
    have the same sequence number) leave in torch's order; a counter of insertions would break that.

    ``index`` is the queue's device index: ``CPU_QUEUE`` for a calling thread's own queue. Where a
    push or pop is observed, its moment is drawn under the queue's lock: no pop of a task draws an
    earlier number than its push.
    """

    __slots__ = ("_heap", "_lock", "_not_empty", "_preferred", "_waiting", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self._heap: list[_Entry[Base]] = []
        self._lock = threading.RLock()
        self._not_empty = threading.Condition(self._lock)
        self._waiting = 0
        self._preferred: NodeTask[Base] | None = None

    def push(self, task: NodeTask[Base]) -> None:
        """Add ``task`` and wake a waiting thread (``ReadyQueue::push``).

        Who pushes counts the task as outstanding before, where torch's ``push`` does it itself.
        """
        with self._lock:
            heappush(self._heap, _entry(task))
            if self._waiting:
                self._not_empty.notify()

    def push_observed(self, task: NodeTask[Base], thread: int) -> tuple[int, ...]:
        """The same for a task with a node.

        Args:
            task: with graph task and node.
            thread: number of this one.

        Returns:
            The row of its QueuePush.
        """
        base: Any = task.base
        node: Any = task.node
        with self._lock:
            heap = self._heap
            heappush(heap, (0, -base.reentrant_depth, -node.sequence_nr, task))
            if self._waiting:
                self._not_empty.notify()
            return (
                next_seq(),
                clock(),
                thread,
                base.id,
                PUSH,
                node.index,
                self.index,
                len(heap),
                ABSENT,
                ABSENT,
                ABSENT,
            )

    def push_shutdown_task(self) -> None:
        """Make the queue's thread end before it takes up anything else (``pushShutdownTask``)."""
        self.push(NodeTask(None, None, None))

    def pop(
        self, waiting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    ) -> NodeTask[Base]:
        """Take the first task, waiting for one where there is none (``ReadyQueue::pop``).

        Args:
            waiting: entered while it waits.
        """
        with self._lock:
            heap = self._heap
            if not heap:
                self._wait(waiting)
            if self._preferred is None:
                return heappop(heap)[3]
            return self._take_preferred(self._preferred)

    def pop_observed(
        self,
        thread: int,
        waiting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> NodeTask[Base]:
        """The same; the task has the row of its ``TOOK``. ``thread``: number of this one."""
        with self._lock:
            heap = self._heap
            if not heap:
                self._wait(waiting)
            if self._preferred is None:
                task = heappop(heap)[3]
            else:
                task = self._take_preferred(self._preferred)
            node, base = task.node, task.base
            if node is not None and base is not None:
                task.row = (
                    next_seq(),
                    clock(),
                    thread,
                    base.id,
                    TOOK,
                    node.index,
                    self.index,
                    len(heap),
                    ABSENT,
                    ABSENT,
                    ABSENT,
                )
            return task

    def _wait(self, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        with waiting():
            self._waiting += 1
            try:
                while not self._heap:
                    self._not_empty.wait()
            finally:
                self._waiting -= 1

    def prefer(self, graph_task: Base, node: NodeRef) -> bool:
        """Have the next pop give a waiting node instead of the first.

        Returns:
            Whether the node is waiting here.
        """
        with self._lock:
            for *_, task in self._heap:
                if task.base is graph_task and task.node is node:
                    self._preferred = task
                    return True
        return False

    def _take_preferred(self, task: NodeTask[Base]) -> NodeTask[Base]:
        self._preferred = None
        self._heap[:] = [entry for entry in self._heap if entry[3] is not task]
        heapify(self._heap)
        return task

    def state(self) -> QueueState[Base]:
        """What :meth:`restore` brings back, ties in their order included."""
        with self._lock:
            return tuple(self._heap), self._preferred

    def restore(self, state: QueueState[Base]) -> None:
        """Have the queue as it was."""
        with self._lock:
            entries, self._preferred = state
            self._heap[:] = entries

    def wake_before_all(self, graph_task: Base) -> None:
        """Have the next pop give a task without a node; what is here has to be restored then."""
        with self._lock:
            self._preferred = None
            self._heap[:] = [_entry(NodeTask(graph_task, None, None))]

    def discard(self, graph_task: Base) -> None:
        """Drop what an aborted graph task left behind.

        Torch leaves such tasks in the queue, where their expired ``weak_ptr`` makes them no-ops.
        """
        with self._lock:
            kept = [entry for entry in self._heap if entry[3].base is not graph_task]
            if len(kept) != len(self._heap):
                heapify(kept)
                self._heap[:] = kept
            if self._preferred is not None and self._preferred.base is graph_task:
                self._preferred = None

    def empty(self) -> bool:
        """Whether no task is waiting here."""
        return not self._heap

    def size(self) -> int:
        """Number of waiting tasks."""
        return len(self._heap)

    def snapshot(self) -> list[NodeTask[Base]]:
        """The waiting tasks in heap order, the next one first."""
        with self._lock:
            return [entry[3] for entry in self._heap]


class InferredQueue(Generic[Base]):
    """What a ReadyQueue of torch's own engine holds, of the passes that are observed.

    In the same order, ties included. No Python code runs within a push or a pop, not to compare
    two nodes either, so that nothing has to be locked.
    """

    __slots__ = ("_heap", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self._heap: list[tuple[int, int, float, NodeRef, Base]] = []

    def push(self, graph_task: Base, node: NodeRef) -> int:
        """Add a node.

        Returns:
            The length of the queue after it.
        """
        heap = self._heap
        tie = _INFINITY - _INFINITY  # NaN: of two such nodes neither is less
        heappush(heap, (-graph_task.reentrant_depth, -node.sequence_nr, tie, node, graph_task))
        return len(heap)

    def pop_if_first(self, graph_task: Base, node: NodeRef) -> int:
        """Take ``node`` if it is the next.

        Returns:
            The length of the queue after it; -1: another is first, or none.
        """
        heap = self._heap
        if heap:
            first = heap[0]
            if first[3] is node and first[4] is graph_task:
                heappop(heap)
                return len(heap)
        return -1

    def first(self) -> tuple[NodeRef, Base] | None:
        """The node that is next, and its graph task; None: none is waiting."""
        try:
            return self._heap[0][3:]
        except IndexError:
            return None

    def discard(self, graph_task: Base) -> None:
        """Drop all nodes of a graph task."""
        heap = self._heap
        if any(entry[4] is graph_task for entry in heap):
            kept = [entry for entry in heap if entry[4] is not graph_task]
            heapify(kept)
            heap[:] = kept
