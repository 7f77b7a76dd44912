"""BackwardState: the definition of the engine's state, as rules of what each event changes.

What a reader shows comes from :mod:`agviz.traces.timeline`, which finds a state without replaying
what came before; the tests compare the two after every event. :meth:`BackwardState.apply` is the
one door through which a state changes. An event that can't have happened raises
:class:`ImpossibleEventError`, which carries its story.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from agviz.errors import TraceError
from agviz.traces.rows import NodeStatus, QueueContents, QueuedTask
from agviz.traces.task_heap import TaskHeap, priority
from agviz_engine import events
from agviz_engine.events import CPU_QUEUE, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_EVENTS_REMEMBERED: Final = 64


class ImpossibleEventError(TraceError):
    """An event can't happen in the state it was applied to; ``story`` holds what led there."""

    def __init__(self, event: Event, why: str, story: Sequence[Event]) -> None:
        past = "".join(f"\n  {each}" for each in story)
        super().__init__(f"{event} can't happen: {why}; before it came:{past or ' nothing'}")
        self.event = event
        self.why = why
        self.story = tuple(story)
        """The last events of the same graph task and node."""


class GraphShape(NamedTuple):
    """What of a graph its replay needs, each by node index."""

    sequence_nrs: Sequence[int | None]
    """None: AccumulateGrad."""
    dependencies: Sequence[int]
    left_out: Collection[int] = frozenset()
    """Nodes of whose events the recording keeps none."""


_NO_SHAPE: Final = GraphShape((), ())
_NOT_STARTED: Final = {NodeStatus.WAITING, NodeStatus.READY}


@dataclass(slots=True)
class _Task:
    """What is known of one graph task."""

    parent: int
    depth: int
    thread: int
    cpu_queue: int
    shape: GraphShape = _NO_SHAPE
    """The graph, of no nodes before the dependencies are computed."""
    status: list[NodeStatus] = field(default_factory=list)
    remaining: dict[int, int] = field(default_factory=dict)
    """Remaining dependencies, of waiting nodes that lost some."""
    buffers: dict[int, dict[int, int]] = field(default_factory=dict)
    """InputBuffers that hold a gradient, by node: bytes by slot."""
    nonfinite: set[int] = field(default_factory=set)
    executed: int = 0
    has_ended: bool = False
    is_withdrawn: bool = False
    """Whether nothing is inferred of queues and dependencies any more."""
    devices: set[int] = field(default_factory=set)
    """Queues of device threads that it has used."""

    @property
    def is_failing(self) -> bool:
        """Whether the engine discards its NodeTasks, or has done so."""
        return self.has_ended or NodeStatus.FAILED in self.status

    def checked(self, node: int) -> int:
        """``node``. Raises IndexError where there is none of this index."""
        if not 0 <= node < len(self.status):
            raise IndexError(node)
        return node

    def remaining_of(self, node: int) -> int:
        """Number of dependencies a node still waits for."""
        if self.status[self.checked(node)] is not NodeStatus.WAITING:
            return 0
        return self.remaining.get(node, self.shape.dependencies[node])


class BackwardState:
    """What the engine knew after some events. :meth:`apply` is the only way it changes.

    It covers all graph tasks under way, and of those that ended the last ones of each calling
    thread. Methods that take a graph task and a node raise KeyError or IndexError for others.

    Args:
        shape: gives the graph of a graph task whose dependencies have been computed.
        tolerant: take impossible events as well as can be; for recordings with holes.
    """

    def __init__(self, shape: Callable[[int], GraphShape], *, tolerant: bool = False) -> None:
        self.tolerant = tolerant
        self.seq = -1
        """``seq`` of the last event applied, -1 at first."""
        self.time_ns = 0
        """Its time, 0 at first."""
        self.live_bytes = 0
        """Bytes of the gradients in InputBuffers, those of running nodes included."""
        self._shape = shape
        self._tasks: dict[int, _Task] = {}
        self._heaps: dict[int, TaskHeap] = {}
        """By queue: a device index, or ``-1 - thread`` for the queue of a calling thread."""
        self._running: dict[int, list[QueuedTask]] = {}
        """By thread: the nodes it is in, innermost last."""
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

    @property
    def graph_tasks(self) -> tuple[int, ...]:
        """The graph tasks this state covers."""
        return tuple(sorted(self._tasks))

    def status(self, graph_task: int, node: int) -> NodeStatus:
        """How far a node has come; UNKNOWN where that was left out or can't be inferred."""
        task = self._tasks[graph_task]
        known = task.status[task.checked(node)]
        if task.is_withdrawn and not task.has_ended and known in _NOT_STARTED:
            return NodeStatus.UNKNOWN
        return NodeStatus.UNKNOWN if node in task.shape.left_out else known

    def statuses(self, graph_task: int) -> list[NodeStatus]:
        """How far every node has come, by index; empty until the dependencies are computed."""
        return [
            self.status(graph_task, node) for node in range(len(self._tasks[graph_task].status))
        ]

    @property
    def knows_all(self) -> bool:
        """False where events of some node were left out of the recording.

        Queues, buffers, running nodes and :attr:`live_bytes` are then those of the other nodes
        only: more may be there.
        """
        return not any(task.shape.left_out for task in self._tasks.values())

    def remaining(self, graph_task: int, node: int) -> int:
        """Number of dependencies a node still waits for; of one that is left out, those it had."""
        return self._tasks[graph_task].remaining_of(node)

    def sequence_nr(self, graph_task: int, node: int) -> int | None:
        """The sequence number by which a queue orders a node; None: AccumulateGrad."""
        task = self._tasks[graph_task]
        return task.shape.sequence_nrs[task.checked(node)]

    def depth(self, graph_task: int) -> int:
        """How many calls of backward a graph task is inside of; its nodes go before shallower."""
        return self._tasks[graph_task].depth

    def nonfinite(self, graph_task: int) -> frozenset[int]:
        """The nodes in whose outputs a non-finite element was found."""
        return frozenset(self._tasks[graph_task].nonfinite)

    def buffers(self, graph_task: int) -> dict[int, dict[int, int]]:
        """All InputBuffers of a graph task that hold a gradient, by node: bytes by slot."""
        return {node: dict(slots) for node, slots in self._tasks[graph_task].buffers.items()}

    def queues(self) -> list[QueueContents]:
        """The ReadyQueues of these graph tasks, callers' queues first."""
        unknown = {
            queue
            for task in self._tasks.values()
            if task.is_withdrawn and not task.has_ended
            for queue in (task.cpu_queue, *task.devices)
        }
        return [
            QueueContents(
                max(queue, CPU_QUEUE),
                -1 - queue if queue < 0 else None,
                heap.order(),
                queue not in unknown,
            )
            for queue, heap in sorted(self._heaps.items())
        ]

    def queue_length(self, graph_task: int, queue: int) -> int:
        """Number of tasks in a ReadyQueue.

        Args:
            graph_task: of which -1 is the caller's queue.
            queue: device index, or -1.
        """
        return len(self._heap(self._tasks[graph_task], queue))

    def running(self) -> dict[int, tuple[QueuedTask, ...]]:
        """For every thread inside a node: the nodes it is in, innermost (reentrant) last."""
        return {thread: tuple(tasks) for thread, tasks in sorted(self._running.items()) if tasks}

    def executed(self, graph_task: int) -> int:
        """Number of nodes that finished."""
        return self._tasks[graph_task].executed

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

    def _heap(self, task: _Task, queue: int) -> TaskHeap:
        return self._heaps.setdefault(task.cpu_queue if queue == CPU_QUEUE else queue, TaskHeap())

    # How each kind of event changes the state; kinds that are not listed don't.

    def _begun(self, event: events.GraphTaskBegun) -> None:
        if event.graph_task in self._tasks:
            self._object(event, "this graph task began before")
            return
        parent = self._tasks.get(event.parent)
        if all(task.has_ended for task in self._tasks.values()):
            self._tasks.clear()  # the engine was idle
            self._heaps.clear()
        elif parent is None:
            self._forget_ended(event.thread)
        # A reentrant call works on the queue of the thread that makes it.
        cpu_queue = -1 - event.thread if parent is None else parent.cpu_queue
        task = _Task(event.parent, event.reentrant_depth, event.thread, cpu_queue)
        self._tasks[event.graph_task] = task
        self._heap(task, CPU_QUEUE)

    def _forget_ended(self, thread: int) -> None:
        """Drop what ended on ``thread`` before, and the reentrant calls within it."""
        for number in sorted(self._tasks):  # parents come before their children
            task = self._tasks[number]
            is_outermost = task.parent not in self._tasks
            if task.has_ended and is_outermost and task.thread == thread:
                gone = {number}
                for inner in sorted(self._tasks):
                    if self._tasks[inner].parent in gone:
                        gone.add(inner)
                for each in gone:
                    del self._tasks[each]
                self._forget_ended(thread)
                return

    def _computed(self, event: events.DependenciesComputed) -> None:
        task = self._tasks[event.graph_task]
        if task.status:
            self._object(event, "they were computed before")
            return
        task.shape = self._shape(event.graph_task)
        task.status = [NodeStatus.WAITING] * len(task.shape.dependencies)

    def _pushed(self, event: events.QueuePush) -> None:
        task = self._tasks[event.graph_task]
        node = task.checked(event.node)
        if event.queue != CPU_QUEUE:
            task.devices.add(event.queue)
        if task.status[node] is not NodeStatus.WAITING:
            self._object(event, f"the node is {task.status[node]}")
        if (remaining := task.remaining_of(node)) != 0:
            self._object(event, f"the node waits for {remaining} more gradients")
        task.status[node] = NodeStatus.READY
        task.remaining.pop(node, 0)
        if not task.has_ended and not task.is_withdrawn:
            key = priority(task.depth, task.shape.sequence_nrs[node])
            self._heap(task, event.queue).push(key, QueuedTask(event.graph_task, node))

    def _popped(self, event: events.QueuePop) -> None:
        task = self._tasks[event.graph_task]
        heap = self._heap(task, event.queue)
        popped = QueuedTask(event.graph_task, task.checked(event.node))
        if not task.has_ended and not task.is_withdrawn:
            if popped not in heap:
                self._object(event, "the node is not in this queue")
            elif not self._is_next(heap, popped) and not self._was_chosen(popped):
                self._object(event, f"{heap.first} comes before it")
        heap.remove(popped)

    def _is_next(self, heap: TaskHeap, task: QueuedTask) -> bool:
        """Whether only tasks that the engine discards come before it."""
        if heap.first == task:
            return True
        order = (each for each in heap.order() if not self._tasks[each.graph_task].is_failing)
        return next(order, task) == task

    def _was_chosen(self, task: QueuedTask) -> bool:
        return any(
            isinstance(event, events.Intervened)
            and (event.kind, event.graph_task, event.node) == ("next", *task)
            for event in self._recent
        )

    def _started(self, event: events.NodeStarted) -> None:
        task = self._tasks[event.graph_task]
        node = task.checked(event.node)
        possible = _NOT_STARTED if task.is_withdrawn else {NodeStatus.READY}
        if task.status[node] not in possible:
            self._object(event, f"the node is {task.status[node]}")
        task.status[node] = NodeStatus.RUNNING
        if not task.has_ended:
            running = self._running.setdefault(event.thread, [])
            running.append(QueuedTask(event.graph_task, node))

    def _finished(self, event: events.NodeFinished) -> None:
        task = self._tasks[event.graph_task]
        if task.status[task.checked(event.node)] is not NodeStatus.RUNNING:
            self._object(event, f"the node is {task.status[event.node]}")
        task.executed += 1
        self._leave(task, event, NodeStatus.DONE)

    def _failed(self, event: events.NodeFailed) -> None:
        task = self._tasks[event.graph_task]
        impossible = {NodeStatus.WAITING, NodeStatus.SKIPPED, NodeStatus.FAILED}
        if task.status[task.checked(event.node)] in impossible:
            self._object(event, f"the node is {task.status[event.node]}")
        self._leave(task, event, NodeStatus.FAILED)

    def _skipped(self, event: events.NodeSkipped) -> None:
        task = self._tasks[event.graph_task]
        possible = {NodeStatus.READY, NodeStatus.RUNNING}
        if task.status[task.checked(event.node)] not in possible:
            self._object(event, f"the node is {task.status[event.node]}")
        self._leave(task, event, NodeStatus.SKIPPED)

    def _leave(
        self,
        task: _Task,
        event: events.NodeFinished | events.NodeFailed | events.NodeSkipped,
        status: NodeStatus,
    ) -> None:
        task.status[event.node] = status
        self.live_bytes -= sum(task.buffers.pop(event.node, {}).values())
        running = self._running.get(event.thread, [])
        left = QueuedTask(event.graph_task, event.node)
        if left in running:
            running.remove(left)

    def _decremented(self, event: events.DependencyDecremented) -> None:
        task = self._tasks[event.graph_task]
        if event.node in task.shape.left_out:
            return  # recorded because of its producer; when it lets go is not recorded
        known = task.remaining_of(event.node)
        if event.remaining != known - 1 or event.remaining < 0:
            self._object(event, f"the node waited for {known} gradients")
        if task.status[event.node] is NodeStatus.WAITING:
            task.remaining[event.node] = event.remaining

    def _accumulated(self, event: events.GradientAccumulated) -> None:
        task = self._tasks[event.graph_task]
        node = task.checked(event.node)
        if node in task.shape.left_out or task.has_ended:
            return  # nobody will take it out
        possible = _NOT_STARTED if task.is_withdrawn else {NodeStatus.WAITING}
        if task.status[node] not in possible:
            self._object(event, f"the node is {task.status[node]}")
            return
        slots = task.buffers.setdefault(node, {})
        self.live_bytes += event.nbytes - slots.get(event.slot, 0)
        slots[event.slot] = event.nbytes

    def _checked(self, event: events.NonFiniteChecked) -> None:
        if event.nan or event.posinf or event.neginf:
            task = self._tasks[event.graph_task]
            task.nonfinite.add(task.checked(event.node))

    def _withdrawn(self, event: events.InferenceWithdrawn) -> None:
        self._tasks[event.graph_task].is_withdrawn = True
        for heap in self._heaps.values():
            heap.drop(event.graph_task)

    def _ended(self, event: events.GraphTaskFinished | events.GraphTaskFailed) -> None:
        task = self._tasks[event.graph_task]
        task.has_ended = True
        self.live_bytes -= sum(sum(slots.values()) for slots in task.buffers.values())
        task.buffers.clear()
        for heap in self._heaps.values():  # what a failed one left behind is dropped
            heap.drop(event.graph_task)
        for tasks in self._running.values():
            tasks[:] = [running for running in tasks if running.graph_task != event.graph_task]

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
        events.InferenceWithdrawn: _withdrawn,
        events.GraphTaskFinished: _ended,
        events.GraphTaskFailed: _ended,
    }
