"""BackwardState: the engine's state at one moment, replayed from events.

It knows no thread, file or screen. :meth:`BackwardState.apply` is the one door through which it
changes; an event that can't have happened raises :class:`ImpossibleEventError`, which carries its
story.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, overload

from agviz.errors import TraceError
from agviz.traces import keyframe
from agviz.traces.graph_shape import GraphShape
from agviz.traces.heap_entry import SHUTDOWN, QueuedTask
from agviz.traces.keyframe import Facts, GraphTaskFacts
from agviz.traces.rows import NodeStatus
from agviz.traces.task_heap import TaskHeap
from agviz_engine import events
from agviz_engine.events import CPU_QUEUE, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Container

__all__ = [
    "BackwardState",
    "GraphShape",
    "ImpossibleEventError",
    "PopOrder",
    "QueueContents",
    "QueuedTask",
]

_EVENTS_REMEMBERED: Final = 64

_WAITING, _READY, _RUNNING, _DONE, _SKIPPED, _FAILED, _TAKEN = range(keyframe.STATUSES)
_STATUS: Final = (
    NodeStatus.WAITING,
    NodeStatus.READY,
    NodeStatus.RUNNING,
    NodeStatus.DONE,
    NodeStatus.SKIPPED,
    NodeStatus.FAILED,
    NodeStatus.READY,
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


class PopOrder(Sequence[QueuedTask]):
    """The tasks of a queue in the order in which they would be popped, found as far as asked for.

    A queue may hold as many tasks as the graph has nodes, and its readers see a few of them.
    """

    def __init__(self, heap: TaskHeap) -> None:
        self._length = len(heap)
        self._rest = heap
        self._popped: list[QueuedTask] = []
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
            while len(self._popped) <= place:
                self._popped.append(self._rest.pop()[1].task)
        return self._popped[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PopOrder) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PopOrder({list(self)})"


class QueueContents(NamedTuple):
    """One ReadyQueue."""

    queue: int
    """Device index, or -1 for the queue of a thread that calls backward."""
    thread: int | None
    """The thread that owns a queue -1; None for device queues."""
    tasks: PopOrder
    """In the order in which they would be popped."""


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
        self._now = Facts(shape)
        self._recent: deque[Event] = deque(maxlen=_EVENTS_REMEMBERED)

    def apply(self, event: Event) -> None:
        """Move on by one event.

        Raises:
            ImpossibleEventError: the event can't happen in this state (never in tolerant mode).
        """
        handler = self._HANDLERS.get(type(event))
        now = self._now
        if handler is not None:
            try:
                handler(self, now, event)
            except (KeyError, IndexError):
                self._object(event, "there is no such graph task or node at this point")
        now.seq = event[0]
        now.time_ns = event[1]
        self._recent.append(event)

    def copy(self) -> BackwardState:
        """An independent copy."""
        twin = BackwardState(self._shape, tolerant=self.tolerant)
        twin._now = self._now.copy()
        twin._recent = self._recent.copy()
        return twin

    def skip_to(self, seq: int) -> None:
        """Declare that nothing of interest happened up to ``seq``."""
        self._now.seq = seq

    def pack(self, alone: Container[int] = ()) -> bytes:
        """Everything but the story: Note [Keyframes].

        Args:
            alone: graph tasks during which no other of the same depth is ever under way.
        """
        return keyframe.pack(self._now, alone)

    def unpack(self, packed: bytes) -> BackwardState:
        """The state that was packed, of the same recording.

        Raises:
            ValueError: the bytes are no keyframe of this recording.
        """
        state = BackwardState(self._shape, tolerant=self.tolerant)
        state._now = keyframe.unpack(packed, self._shape)
        return state

    @property
    def seq(self) -> int:
        """``seq`` of the last event applied, -1 at first."""
        return self._now.seq

    @property
    def time_ns(self) -> int:
        """Its time, 0 at first."""
        return self._now.time_ns

    @property
    def graph_tasks(self) -> tuple[int, ...]:
        """The graph tasks this state covers."""
        return tuple(self._now.known())

    def size(self, graph_task: int) -> int:
        """Number of nodes of a graph task; 0 until the dependencies are computed."""
        return len(self._now.look(graph_task).status)

    def status(self, graph_task: int, node: int) -> NodeStatus:
        """How far a node has come; UNKNOWN where its events were left out."""
        task = self._now.look(graph_task)
        if node in task.left_out:
            return NodeStatus.UNKNOWN
        return _STATUS[task.status[task.checked(node)]]

    def statuses(self, graph_task: int) -> list[NodeStatus]:
        """How far every node has come, by index; empty until the dependencies are computed."""
        task = self._now.look(graph_task)
        statuses = [_STATUS[code] for code in task.status]
        for node in task.left_out:
            if node < len(statuses):
                statuses[node] = NodeStatus.UNKNOWN
        return statuses

    @property
    def knows_all(self) -> bool:
        """False where events of some node were left out of the recording.

        Queues, buffers, running nodes and :attr:`live_bytes` are then those of the other nodes
        only: more may be there.
        """
        return not self._now.has_left_out

    def remaining(self, graph_task: int, node: int) -> int:
        """Number of dependencies a node still waits for; of one that is left out, those it had."""
        return self._now.look(graph_task).remaining_of(node)

    def is_nonfinite(self, graph_task: int, node: int) -> bool:
        """Whether a non-finite element was found in an output of the node."""
        return node in self._now.look(graph_task).nonfinite

    def sequence_nr(self, graph_task: int, node: int) -> int | None:
        """The sequence number by which a queue orders a node; None: AccumulateGrad."""
        task = self._now.look(graph_task)
        return task.shape.sequence_nrs[task.checked(node)]

    def depth(self, graph_task: int) -> int:
        """How many calls of backward a graph task is inside of; its nodes go before shallower."""
        return self._now.look(graph_task).depth

    def nonfinite(self, graph_task: int) -> frozenset[int]:
        """The nodes of which that is so."""
        return frozenset(self._now.look(graph_task).nonfinite)

    def buffer(self, graph_task: int, node: int) -> dict[int, int]:
        """The node's InputBuffer: slots that hold a gradient, and their bytes."""
        return _buffer(self._now.look(graph_task), node)

    def buffers(self, graph_task: int) -> dict[int, dict[int, int]]:
        """All InputBuffers of a graph task that hold a gradient, by node: bytes by slot."""
        task = self._now.look(graph_task)
        nodes = task.slot_0.numbers().keys() | task.further_slots
        return {node: _buffer(task, node) for node in nodes}

    def queues(self) -> list[QueueContents]:
        """The ReadyQueues seen so far, callers' queues first."""
        return [
            QueueContents(
                max(queue, CPU_QUEUE), -1 - queue if queue < 0 else None, PopOrder(heap.copy())
            )
            for queue, heap in sorted(self._now.heaps.items())
        ]

    def queue_length(self, graph_task: int, queue: int) -> int:
        """Number of tasks in a ReadyQueue.

        Args:
            graph_task: of which -1 is the caller's queue.
            queue: device index, or -1.
        """
        task = self._now.look(graph_task)
        return len(self._now.heaps.get(task.cpu_queue if queue == CPU_QUEUE else queue, ()))

    def running(self) -> dict[int, tuple[QueuedTask, ...]]:
        """For every thread inside a node: the nodes it is in, innermost (reentrant) last."""
        running = sorted(self._now.running.items())
        return {thread: tuple(tasks) for thread, tasks in running if tasks}

    def executed(self, graph_task: int) -> int:
        """Number of nodes that finished."""
        return self._now.look(graph_task).executed

    @property
    def live_bytes(self) -> int:
        """Bytes of the gradients in InputBuffers, those of running nodes included."""
        return self._now.live_bytes

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

    def _begun(self, now: Facts, event: events.GraphTaskBegun) -> None:
        if event.graph_task in now:
            self._object(event, "this graph task began before")
            return
        parent = now.look(event.parent) if event.parent in now else None
        if parent is None:
            _forget_ended(now, event.thread)
        # A reentrant call works on the queue of the thread that makes it.
        cpu_queue = -1 - event.thread if parent is None else parent.cpu_queue
        now.graph_tasks[event.graph_task] = GraphTaskFacts(
            event.parent, event.reentrant_depth, event.thread, cpu_queue
        )
        now.heaps.setdefault(cpu_queue, TaskHeap())

    def _computed(self, now: Facts, event: events.DependenciesComputed) -> None:
        task = now.task(event.graph_task)
        if task.status:
            self._object(event, "they were computed before")
            return
        task.shape = self._shape(event.graph_task)
        task.status = bytearray(len(task.shape.dependencies))

    def _pushed(self, now: Facts, event: events.QueuePush) -> None:
        task = now.task(event.graph_task)
        node = task.checked(event.node)
        if task.status[node] != _WAITING:
            self._object(event, f"the node is {_STATUS[task.status[node]]}")
        if (remaining := task.remaining_of(node)) != 0:
            self._object(event, f"the node waits for {remaining} more gradients")
        task.status[node] = _READY
        task.remaining.pop(node, 0)
        entry = task.shape.entry(event.graph_task, task.depth, node)
        _heap(now, task, event.queue).push(entry)

    def _popped(self, now: Facts, event: events.QueuePop) -> None:
        task = now.task(event.graph_task)
        heap = _heap(now, task, event.queue)
        popped = QueuedTask(event.graph_task, task.checked(event.node))
        is_chosen = task.status[event.node] == _TAKEN
        if task.status[event.node] == _READY:
            task.status[event.node] = _TAKEN
        if _pop_if_first(heap, popped):
            return
        if task.ended:  # what a failed graph task left behind comes out at some time
            heap.remove(popped)
            return
        heap.drop(lambda number: _is_over(now, number))
        if _pop_if_first(heap, popped):
            return
        found, first = heap.find(popped), heap.first
        if found is None or first is None:
            self._object(event, "the node is not in this queue")
            return
        if first < found and not is_chosen:
            self._object(event, f"{first[1].task} comes before it")
        heap.remove(popped)

    def _started(self, now: Facts, event: events.NodeStarted) -> None:
        task = now.task(event.graph_task)
        node = task.checked(event.node)
        if task.status[node] not in {_READY, _TAKEN}:
            self._object(event, f"the node is {_STATUS[task.status[node]]}")
        task.status[node] = _RUNNING
        running = now.running.setdefault(event.thread, [])
        running.append(QueuedTask(event.graph_task, node))

    def _finished(self, now: Facts, event: events.NodeFinished) -> None:
        task = now.task(event.graph_task)
        if task.status[task.checked(event.node)] != _RUNNING:
            self._object(event, f"the node is {_STATUS[task.status[event.node]]}")
        task.executed += 1
        _leave(now, task, event, _DONE)

    def _failed(self, now: Facts, event: events.NodeFailed) -> None:
        task = now.task(event.graph_task)
        if task.status[task.checked(event.node)] in {_WAITING, _SKIPPED, _FAILED}:
            self._object(event, f"the node is {_STATUS[task.status[event.node]]}")
        _leave(now, task, event, _FAILED)

    def _skipped(self, now: Facts, event: events.NodeSkipped) -> None:
        task = now.task(event.graph_task)
        if task.status[task.checked(event.node)] not in {_READY, _TAKEN, _RUNNING}:
            self._object(event, f"the node is {_STATUS[task.status[event.node]]}")
        _leave(now, task, event, _SKIPPED)

    def _decremented(self, now: Facts, event: events.DependencyDecremented) -> None:
        task = now.task(event.graph_task)
        if event.node in task.left_out:
            return  # told because of its producer; when it lets go will not be told
        known = task.remaining_of(event.node)
        if event.remaining != known - 1 or event.remaining < 0:
            self._object(event, f"the node waited for {known} gradients")
            if task.status[event.node] != _WAITING:
                return
        task.remaining[event.node] = event.remaining

    def _accumulated(self, now: Facts, event: events.GradientAccumulated) -> None:
        task = now.task(event.graph_task)
        node = task.checked(event.node)
        if node in task.left_out or task.ended:
            return  # nobody will take it out
        if task.status[node] != _WAITING:
            self._object(event, f"the node is {_STATUS[task.status[node]]}")
            return
        if event.slot == 0:
            now.live_bytes += event.nbytes - task.slot_0.get(node, 0)
            task.slot_0[node] = event.nbytes
        else:
            slots = task.further_slots.setdefault(node, {})
            now.live_bytes += event.nbytes - slots.get(event.slot, 0)
            slots[event.slot] = event.nbytes

    def _checked(self, now: Facts, event: events.NonFiniteChecked) -> None:
        if event.nan or event.posinf or event.neginf:
            task = now.task(event.graph_task)
            task.nonfinite.add(task.checked(event.node))

    def _intervened(self, now: Facts, event: events.Intervened) -> None:
        task = now.task(event.graph_task)
        node = task.checked(event.node)
        if event.kind == "next" and task.status[node] == _READY:
            task.status[node] = _TAKEN  # before it leaves the queue, which gives it next

    def _ended(self, now: Facts, event: events.GraphTaskFinished | events.GraphTaskFailed) -> None:
        task = now.task(event.graph_task)
        task.ended = True
        now.live_bytes -= sum(task.slot_0.numbers().values())
        now.live_bytes -= sum(sum(slots.values()) for slots in task.further_slots.values())
        task.slot_0.clear()
        task.further_slots.clear()
        for tasks in now.running.values():
            tasks[:] = [running for running in tasks if running.graph_task != event.graph_task]

    def _aborted(self, now: Facts, event: events.GraphTaskFailed) -> None:
        self._ended(now, event)
        for heap in now.heaps.values():  # what it left behind is dropped untold
            heap.drop(lambda number: number == event.graph_task)

    def _shut_down(self, now: Facts, event: events.ShutdownTaskPushed) -> None:
        now.heaps.setdefault(event.queue, TaskHeap()).push(SHUTDOWN)

    def _stopped(self, now: Facts, _event: events.WorkerStopped) -> None:
        for heap in now.heaps.values():
            if heap.first is SHUTDOWN:
                heap.pop()
                return

    _HANDLERS: ClassVar[dict[type[Any], Callable[[BackwardState, Facts, Any], None]]] = {
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
        events.Intervened: _intervened,
        events.GraphTaskFinished: _ended,
        events.GraphTaskFailed: _aborted,
        events.ShutdownTaskPushed: _shut_down,
        events.WorkerStopped: _stopped,
    }


def _buffer(task: GraphTaskFacts, node: int) -> dict[int, int]:
    first = {0: task.slot_0.get(node, 0)} if node in task.slot_0 else {}
    return first | task.further_slots.get(node, {})


def _heap(now: Facts, task: GraphTaskFacts, queue: int) -> TaskHeap:
    number = task.cpu_queue if queue == CPU_QUEUE else queue
    heap = now.heaps.get(number)
    if heap is None:
        heap = now.heaps[number] = TaskHeap()
    return heap


def _pop_if_first(heap: TaskHeap, task: QueuedTask) -> bool:
    first = heap.first
    if first is None or first[1].task != task:
        return False
    heap.pop()
    return True


def _leave(
    now: Facts,
    task: GraphTaskFacts,
    event: events.NodeFinished | events.NodeFailed | events.NodeSkipped,
    status: int,
) -> None:
    node = event.node
    task.status[node] = status
    now.live_bytes -= task.slot_0.pop(node, 0)
    if node in task.further_slots:
        now.live_bytes -= sum(task.further_slots.pop(node).values())
    running = now.running.get(event.thread, [])
    left = QueuedTask(event.graph_task, node)
    if left in running:
        running.remove(left)


def _is_over(now: Facts, graph_task: int) -> bool:
    """Whether it has ended or is about to fail: then its tasks may leave untold."""
    task = now.graph_tasks.get(graph_task)
    if task is None:
        return graph_task in now.ended
    return task.ended or _FAILED in task.status


def _forget_ended(now: Facts, thread: int) -> None:
    """Drop what ended on ``thread`` before, and the reentrant calls within it."""
    busy = {number for heap in now.heaps.values() for number in heap.graph_tasks()}
    busy |= {task.graph_task for tasks in now.running.values() for task in tasks}
    every = [
        (number, task.parent, task.thread, task.ended) for number, task in now.graph_tasks.items()
    ]
    every += ((*each, True) for each in now.ended.ancestry())
    every.sort()  # parents come before their children
    gone: set[int] = set()
    for number, parent, its_thread, has_ended in every:
        inside = parent in gone or parent not in now
        own = its_thread == thread or parent in gone
        if has_ended and inside and own and number not in busy:
            gone.add(number)
    now.forget(gone)
