"""BackwardState: the engine's state at one moment, replayed from events.

It knows no thread, file or screen. :meth:`BackwardState.apply` is the one door through which it
changes; an event that can't have happened raises :class:`ImpossibleEventError`, which carries its
story.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from agviz.errors import TraceError
from agviz.trace.rows import NodeStatus
from agviz_engine import events
from agviz_engine.events import CPU_QUEUE, NO_GRAPH_TASK, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NO_NODE: Final = -1
_EVENTS_REMEMBERED: Final = 64
_ACCUMULATE_GRAD_SEQUENCE_NR: Final = 2**64 - 1

_WAITING, _READY, _RUNNING, _DONE, _SKIPPED, _FAILED = range(6)
_STATUS: Final = (
    NodeStatus.WAITING,
    NodeStatus.READY,
    NodeStatus.RUNNING,
    NodeStatus.DONE,
    NodeStatus.SKIPPED,
    NodeStatus.FAILED,
)


class ImpossibleEventError(TraceError):
    """An event can't happen in the state it was applied to; ``story`` holds what led there."""

    def __init__(self, event: Event, why: str, story: Sequence[Event]) -> None:
        told = "".join(f"\n  {past}" for past in story)
        super().__init__(f"{event} can't happen: {why}; before it came:{told or ' nothing'}")
        self.event = event
        self.why = why
        self.story = tuple(story)
        """The last events of the same graph task and node."""


class GraphShape(NamedTuple):
    """What of a graph its replay needs, each by node index."""

    sequence_nrs: Sequence[int | None]
    """None: AccumulateGrad."""
    dependencies: Sequence[int]


class QueuedTask(NamedTuple):
    """A NodeTask in a ReadyQueue."""

    graph_task: int
    node: int
    """-1 for a task without a node: a shutdown."""


class QueueContents(NamedTuple):
    """One ReadyQueue."""

    queue: int
    """Device index, or -1 for the queue of a thread that calls backward."""
    thread: int | None
    """The thread that owns a queue -1; None for device queues."""
    tasks: tuple[QueuedTask, ...]
    """In the order in which they would be popped."""


class _HeapTask:
    """A NodeTask, ordered as in torch: equal ones are not less than each other.

    ``heapq`` then sifts exactly as ``std::priority_queue`` does, so that ties (AccumulateGrad nodes
    all have the same sequence number) leave in torch's order.
    """

    __slots__ = ("key", "task")

    def __init__(self, key: tuple[int, int, int], task: QueuedTask) -> None:
        self.key = key
        self.task = task

    def __lt__(self, other: _HeapTask) -> bool:
        return self.key < other.key


_SHUTDOWN: Final = _HeapTask((-1, 0, 0), QueuedTask(NO_GRAPH_TASK, NO_NODE))


class _GraphTask:
    """What is known of one graph task."""

    __slots__ = (
        "buffers",
        "cpu_queue",
        "depth",
        "ended",
        "executed",
        "nonfinite",
        "parent",
        "partial",
        "shape",
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
        self.partial: dict[int, int] = {}
        """Remaining dependencies, for nodes that lost some."""
        self.buffers: dict[int, dict[int, int]] = {}
        """Bytes by slot, by node."""
        self.nonfinite: set[int] = set()

    def checked(self, node: int) -> int:
        """``node``. Raises IndexError where there is none of this index."""
        if not 0 <= node < len(self.status):
            raise IndexError(node)
        return node

    def copy(self) -> _GraphTask:
        """A copy that shares nothing that changes."""
        twin = _GraphTask(self.parent, self.depth, self.thread, self.cpu_queue)
        twin.ended = self.ended
        twin.executed = self.executed
        twin.shape = self.shape
        twin.status = bytearray(self.status)
        twin.partial = dict(self.partial)
        twin.buffers = {node: dict(slots) for node, slots in self.buffers.items()}
        twin.nonfinite = set(self.nonfinite)
        return twin


class BackwardState:
    """What the engine knew after some events. :meth:`apply` is the only way it changes.

    It covers all graph tasks under way, and of those that ended the last ones of each calling
    thread. Methods that take a graph task and a node raise KeyError or IndexError for others.

    Args:
        shape: gives the graph of a graph task whose dependencies have been computed.
        tolerant: take impossible events as well as can be; for recordings with holes.
    """

    def __init__(self, shape: Callable[[int], GraphShape], *, tolerant: bool = False) -> None:
        self._shape = shape
        self.tolerant = tolerant
        self.seq = -1
        """``seq`` of the last event applied, -1 at first."""
        self.time_ns = 0
        """Its time, 0 at first."""
        self._graph_tasks: dict[int, _GraphTask] = {}
        self._heaps: dict[int, list[_HeapTask]] = {}
        """By queue: a device index, or ``-1 - thread`` for the queue of a calling thread."""
        self._running: dict[int, list[QueuedTask]] = {}
        self._live_bytes = 0
        self._recent: deque[Event] = deque(maxlen=_EVENTS_REMEMBERED)

    def apply(self, event: Event) -> None:
        """Move on by one event.

        Raises:
            ImpossibleEventError: the event can't happen in this state (never in tolerant mode).
        """
        handler = self._HANDLERS.get(type(event))
        if handler is not None:
            try:
                handler(self, event)
            except (KeyError, IndexError):
                self._object(event, "there is no such graph task or node at this point")
        self.seq = event.seq
        self.time_ns = event.time_ns
        self._recent.append(event)

    def copy(self) -> BackwardState:
        """An independent copy."""
        twin = BackwardState(self._shape, tolerant=self.tolerant)
        twin.seq = self.seq
        twin.time_ns = self.time_ns
        twin._graph_tasks = {number: task.copy() for number, task in self._graph_tasks.items()}
        twin._heaps = {queue: list(heap) for queue, heap in self._heaps.items()}
        twin._running = {thread: list(tasks) for thread, tasks in self._running.items()}
        twin._live_bytes = self._live_bytes
        twin._recent = self._recent.copy()
        return twin

    @property
    def size(self) -> int:
        """Roughly the bytes that a copy takes."""
        tasks = self._graph_tasks.values()
        return 2_000 + sum(
            len(task.status) + 100 * (len(task.partial) + 4 * len(task.buffers)) for task in tasks
        )

    @property
    def graph_tasks(self) -> tuple[int, ...]:
        """The graph tasks this state covers."""
        return tuple(self._graph_tasks)

    def status(self, graph_task: int, node: int) -> NodeStatus:
        """How far a node has come."""
        task = self._graph_tasks[graph_task]
        return _STATUS[task.status[task.checked(node)]]

    def statuses(self, graph_task: int) -> list[NodeStatus]:
        """How far every node has come, by index; empty until the dependencies are computed."""
        return [_STATUS[code] for code in self._graph_tasks[graph_task].status]

    def remaining(self, graph_task: int, node: int) -> int:
        """Number of dependencies a node still waits for."""
        task = self._graph_tasks[graph_task]
        remaining = task.partial.get(task.checked(node))
        return task.shape.dependencies[node] if remaining is None else remaining

    def is_nonfinite(self, graph_task: int, node: int) -> bool:
        """Whether a non-finite element was found in an output of the node."""
        return node in self._graph_tasks[graph_task].nonfinite

    def buffer(self, graph_task: int, node: int) -> dict[int, int]:
        """The node's InputBuffer: slots that hold a gradient, and their bytes."""
        return dict(self._graph_tasks[graph_task].buffers.get(node, ()))

    def buffers(self, graph_task: int) -> dict[int, dict[int, int]]:
        """All InputBuffers of a graph task that hold a gradient, by node: bytes by slot."""
        buffers = self._graph_tasks[graph_task].buffers
        return {node: dict(slots) for node, slots in buffers.items()}

    def queues(self) -> list[QueueContents]:
        """The ReadyQueues seen so far, callers' queues first."""
        return [
            QueueContents(max(queue, CPU_QUEUE), -1 - queue if queue < 0 else None, _order(heap))
            for queue, heap in sorted(self._heaps.items())
        ]

    def running(self) -> dict[int, tuple[QueuedTask, ...]]:
        """For every thread inside a node: the nodes it is in, innermost (reentrant) last."""
        return {thread: tuple(tasks) for thread, tasks in sorted(self._running.items()) if tasks}

    def executed(self, graph_task: int) -> int:
        """Number of nodes that finished."""
        return self._graph_tasks[graph_task].executed

    @property
    def live_bytes(self) -> int:
        """Bytes of the gradients in InputBuffers, those of running nodes included."""
        return self._live_bytes

    def _object(self, event: Event, why: str) -> None:
        if self.tolerant:
            return
        node = getattr(event, "node", None)
        story = [
            past
            for past in self._recent
            if past.graph_task == event.graph_task
            and node in {None, getattr(past, "node", None), getattr(past, "producer", None)}
        ]
        raise ImpossibleEventError(event, why, story)

    # How each kind of event changes the state; kinds that are not listed don't.

    def _begun(self, event: events.GraphTaskBegun) -> None:
        if event.graph_task in self._graph_tasks:
            self._object(event, "this graph task began before")
        parent = self._graph_tasks.get(event.parent)
        if parent is None:
            self._forget_ended(event.thread)
        # A reentrant call works on the queue of the thread that makes it.
        cpu_queue = -1 - event.thread if parent is None else parent.cpu_queue
        self._graph_tasks[event.graph_task] = _GraphTask(
            event.parent, event.reentrant_depth, event.thread, cpu_queue
        )
        self._heaps.setdefault(cpu_queue, [])

    def _computed(self, event: events.DependenciesComputed) -> None:
        task = self._graph_tasks[event.graph_task]
        task.shape = self._shape(event.graph_task)
        task.status = bytearray(len(task.shape.dependencies))

    def _pushed(self, event: events.QueuePush) -> None:
        task = self._graph_tasks[event.graph_task]
        node = task.checked(event.node)
        if task.status[node] != _WAITING:
            self._object(event, f"the node is {_STATUS[task.status[node]]}")
        if (remaining := self.remaining(event.graph_task, node)) != 0:
            self._object(event, f"the node waits for {remaining} more gradients")
        task.status[node] = _READY
        number = task.shape.sequence_nrs[node]
        key = (0, -task.depth, -(_ACCUMULATE_GRAD_SEQUENCE_NR if number is None else number))
        heap = self._heap(task, event.queue)
        heapq.heappush(heap, _HeapTask(key, QueuedTask(event.graph_task, node)))

    def _popped(self, event: events.QueuePop) -> None:
        task = self._graph_tasks[event.graph_task]
        heap = self._heap(task, event.queue)
        popped = QueuedTask(event.graph_task, task.checked(event.node))
        if task.ended:  # what a failed graph task left behind comes out at some time
            _remove(heap, lambda queued: queued == popped)
            return
        if heap and heap[0].task != popped:
            _remove(heap, self._has_ended)
        if heap and heap[0].task == popped:
            heapq.heappop(heap)
            return
        found = next((queued for queued in heap if queued.task == popped), None)
        if found is None:
            self._object(event, "the node is not in this queue")
            return
        if heap[0] < found:
            self._object(event, f"{heap[0].task} comes before it")
        _remove(heap, lambda queued: queued == popped)

    def _started(self, event: events.NodeStarted) -> None:
        task = self._graph_tasks[event.graph_task]
        node = task.checked(event.node)
        if task.status[node] != _READY:
            self._object(event, f"the node is {_STATUS[task.status[node]]}")
        task.status[node] = _RUNNING
        running = self._running.setdefault(event.thread, [])
        running.append(QueuedTask(event.graph_task, node))

    def _finished(self, event: events.NodeFinished) -> None:
        task = self._graph_tasks[event.graph_task]
        if task.status[task.checked(event.node)] != _RUNNING:
            self._object(event, f"the node is {_STATUS[task.status[event.node]]}")
        task.executed += 1
        self._leave(task, event, _DONE)

    def _failed(self, event: events.NodeFailed) -> None:
        task = self._graph_tasks[event.graph_task]
        if task.status[task.checked(event.node)] in {_WAITING, _SKIPPED, _FAILED}:
            self._object(event, f"the node is {_STATUS[task.status[event.node]]}")
        self._leave(task, event, _FAILED)

    def _skipped(self, event: events.NodeSkipped) -> None:
        task = self._graph_tasks[event.graph_task]
        if task.status[task.checked(event.node)] not in {_READY, _RUNNING}:
            self._object(event, f"the node is {_STATUS[task.status[event.node]]}")
        self._leave(task, event, _SKIPPED)

    def _decremented(self, event: events.DependencyDecremented) -> None:
        task = self._graph_tasks[event.graph_task]
        known = self.remaining(event.graph_task, task.checked(event.node))
        if event.remaining != known - 1 or event.remaining < 0:
            self._object(event, f"the node waited for {known} gradients")
        task.partial[event.node] = event.remaining

    def _accumulated(self, event: events.GradientAccumulated) -> None:
        task = self._graph_tasks[event.graph_task]
        node = task.checked(event.node)
        if task.status[node] != _WAITING:
            self._object(event, f"the node is {_STATUS[task.status[node]]}")
            return
        slots = task.buffers.setdefault(node, {})
        self._live_bytes += event.nbytes - slots.get(event.slot, 0)
        slots[event.slot] = event.nbytes

    def _checked(self, event: events.NonFiniteChecked) -> None:
        if event.nan or event.posinf or event.neginf:
            task = self._graph_tasks[event.graph_task]
            task.nonfinite.add(task.checked(event.node))

    def _ended(self, event: events.GraphTaskFinished | events.GraphTaskFailed) -> None:
        task = self._graph_tasks[event.graph_task]
        task.ended = True
        for node in task.buffers:
            self._live_bytes -= sum(task.buffers[node].values())
        task.buffers.clear()
        for tasks in self._running.values():
            tasks[:] = [running for running in tasks if running.graph_task != event.graph_task]

    def _shut_down(self, event: events.ShutdownTaskPushed) -> None:
        heapq.heappush(self._heaps.setdefault(event.queue, []), _SHUTDOWN)

    def _stopped(self, _event: events.WorkerStopped) -> None:
        for heap in self._heaps.values():
            if heap and heap[0] is _SHUTDOWN:
                heapq.heappop(heap)
                return

    _HANDLERS: ClassVar[dict[type[Any], Callable[[BackwardState, Any], None]]] = {
        events.GraphTaskBegun: _begun,
        events.DependenciesComputed: _computed,
        events.QueuePush: _pushed,
        events.QueuePop: _popped,
        events.NodeStarted: _started,
        events.NodeFinished: _finished,
        events.NodeFailed: _failed,
        events.NodeSkipped: _skipped,
        events.DependencyDecremented: _decremented,
        events.GradientAccumulated: _accumulated,
        events.NonFiniteChecked: _checked,
        events.GraphTaskFinished: _ended,
        events.GraphTaskFailed: _ended,
        events.ShutdownTaskPushed: _shut_down,
        events.WorkerStopped: _stopped,
    }

    def _heap(self, task: _GraphTask, queue: int) -> list[_HeapTask]:
        return self._heaps.setdefault(task.cpu_queue if queue == CPU_QUEUE else queue, [])

    def _leave(
        self,
        task: _GraphTask,
        event: events.NodeFinished | events.NodeFailed | events.NodeSkipped,
        status: int,
    ) -> None:
        task.status[event.node] = status
        self._live_bytes -= sum(task.buffers.pop(event.node, {}).values())
        running = self._running.get(event.thread, [])
        left = QueuedTask(event.graph_task, event.node)
        if left in running:
            running.remove(left)

    def _has_ended(self, queued: QueuedTask) -> bool:
        task = self._graph_tasks.get(queued.graph_task)
        return task is not None and task.ended

    def _forget_ended(self, thread: int) -> None:
        """Drop what ended on ``thread`` before, and the reentrant calls within it."""
        queued = {item.task.graph_task for heap in self._heaps.values() for item in heap}
        gone: set[int] = set()
        for number, task in self._graph_tasks.items():  # parents come before their children
            inside = task.parent in gone if task.parent in self._graph_tasks else True
            own = task.thread == thread or task.parent in gone
            if task.ended and inside and own and number not in queued:
                gone.add(number)
        for number in gone:
            del self._graph_tasks[number]


def _order(heap: list[_HeapTask]) -> tuple[QueuedTask, ...]:
    rest = list(heap)
    return tuple(heapq.heappop(rest).task for _ in heap)


def _remove(heap: list[_HeapTask], unwanted: Callable[[QueuedTask], bool]) -> None:
    kept = [item for item in heap if not unwanted(item.task)]
    if len(kept) != len(heap):
        heap[:] = kept
        heapq.heapify(heap)
