"""NodeTask and ReadyQueue, and the order in which tasks leave it (torch's ``engine.h``)."""

from __future__ import annotations

import contextlib
import heapq
import threading
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from agviz_engine.emissions import Moment
    from agviz_engine.input_buffer import InputBuffer
    from agviz_engine.node import NodeRef

_SHUTDOWN = (-2, 0, 0)
_EMPTY = (-1, 0, 0)


class _Base(Protocol):
    """All that a queue needs of a graph task, which has such queues itself."""

    reentrant_depth: int


Base = TypeVar("Base", bound=_Base)
"""GraphTask, whose file imports this one for the type of ``cpu_ready_queue``."""


class NodeTask(Generic[Base]):
    """A node of a graph task whose inputs are complete (``struct NodeTask``).

    A task without ``node`` only wakes the queue's thread; a task without ``base`` is the shutdown
    task, which ends a device thread.
    """

    __slots__ = ("base", "inputs", "key", "moment", "node")

    def __init__(self, base: Base | None, node: NodeRef | None, inputs: InputBuffer | None) -> None:
        self.base = base
        self.node = node
        self.inputs = inputs
        self.moment: Moment | None = None
        """When it left its queue; None: nobody observes that, or it was emitted."""
        if node is not None and base is not None:
            self.key = (0, -base.reentrant_depth, -node.sequence_nr)
        else:
            self.key = _EMPTY if base is not None else _SHUTDOWN

    def __lt__(self, _other: NodeTask[Base]) -> bool:
        """Tasks with equal keys are not less than each other, see :class:`ReadyQueue`."""
        return False

    @property
    def is_shutdown_task(self) -> bool:
        """Whether the thread that takes this task has to end."""
        return self.base is None


class ReadyQueue(Generic[Base]):
    """A priority queue of tasks that one thread, and the reentrant calls on it, work off.

    The order is that of ``CompareNodeTaskTime``: shutdown, then empty, then deeper, then later-made
    first. ``heapq`` and ``std::priority_queue`` sift alike, so that ties (all AccumulateGrad nodes
    have the same sequence number) leave in torch's order; a counter of insertions would break that.

    ``index`` is the queue's device index: ``CPU_QUEUE`` for a calling thread's own queue. Whoever
    has to know what happened at the very moment of a push or pop holds ``lock`` around it.
    """

    __slots__ = ("_heap", "_not_empty", "_preferred", "_waiting", "index", "lock")

    def __init__(self, index: int) -> None:
        self.index = index
        self._heap: list[tuple[int, int, int, NodeTask[Base]]] = []
        self.lock = threading.RLock()
        self._not_empty = threading.Condition(self.lock)
        self._waiting = 0
        self._preferred: NodeTask[Base] | None = None

    def push(self, task: NodeTask[Base]) -> int:
        """Add ``task`` and wake a waiting thread (``ReadyQueue::push``).

        Who pushes counts the task as outstanding before, where torch's ``push`` does it itself.

        Returns:
            The number of tasks in the queue, ``task`` included.
        """
        with self.lock:
            heapq.heappush(self._heap, (*task.key, task))
            if self._waiting:
                self._not_empty.notify()
            return len(self._heap)

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
        with self.lock:
            if not self._heap:
                self._wait(waiting)
            if self._preferred is not None:
                return self._take_preferred(self._preferred)
            return heapq.heappop(self._heap)[3]

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
        with self.lock:
            for *_, task in self._heap:
                if task.base is graph_task and task.node is node:
                    self._preferred = task
                    return True
        return False

    def _take_preferred(self, task: NodeTask[Base]) -> NodeTask[Base]:
        self._preferred = None
        self._heap = [entry for entry in self._heap if entry[3] is not task]
        heapq.heapify(self._heap)
        return task

    def discard(self, graph_task: Base) -> None:
        """Drop what an aborted graph task left behind.

        Torch leaves such tasks in the queue, where their expired ``weak_ptr`` makes them no-ops.
        """
        with self.lock:
            kept = [entry for entry in self._heap if entry[3].base is not graph_task]
            if len(kept) != len(self._heap):
                heapq.heapify(kept)
                self._heap = kept
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
        with self.lock:
            return [entry[3] for entry in self._heap]
