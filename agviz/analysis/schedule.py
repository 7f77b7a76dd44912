"""A recorded graph task under another order of its ReadyQueues: what would it hold, and when?

Note [Simulation]
Every device thread takes the next task of its queue as soon as it has finished one. A node takes as
long as it did when it was recorded (its self time: a reentrant graph task counts as part of its
node); what the engine does between nodes takes no time. What arrives in a slot of an InputBuffer
makes it as large as the gradient did that arrived there as the first, as the second and so on. The
InputBuffer of a node is let go of when the node finishes, just before its outputs are handed on.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.errors import AgvizError
from agviz.traces.rows import GraphTaskStatus, NodeStatus, QueuedTask
from agviz.traces.task_heap import TaskHeap, priority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from agviz.traces.events import ArrivalRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import EdgeRow

    class _Queue(Protocol):
        def push(self, node: int) -> None: ...

        def pop(self) -> int: ...

        def __len__(self) -> int: ...


class Handing(NamedTuple):
    """What a node does for one of its edges when it has finished."""

    consumer: int
    slot: int
    has_gradient: bool
    """False: the output was undefined, so that nothing arrives."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A graph task as far as its schedule depends on it. Lists are by node."""

    queues: Sequence[int]
    """Device index of the ReadyQueue; -1: that of the calling thread."""
    sequence_nrs: Sequence[int | None]
    """None: AccumulateGrad."""
    runs: Sequence[bool]
    """Whether it was taken up at all; with ``inputs=`` some nodes are not."""
    times_ns: Sequence[int]
    handings: Sequence[Sequence[Handing]]
    """In order of outputs."""
    held: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """By node and slot: bytes in the slot after the first gradient arrived, the second, …"""
    given: Sequence[tuple[int, int]] = ()
    """Nodes and slots of the gradients that the caller gave."""

    @property
    def dependencies(self) -> list[int]:
        """Number of gradients, undefined ones included, that each node waits for."""
        counts = Counter(handing.consumer for each in self.handings for handing in each)
        return [counts[node] for node in range(len(self.runs))]


class ThreadCourse(NamedTuple):
    """What the thread that serves one queue did."""

    queue: int
    nodes: int
    busy_ns: int
    end_ns: int
    """When it finished its last node, since the first node of the graph task began."""


class Schedule(NamedTuple):
    """How a graph task went in a simulation. Times are ns since its first node began."""

    order: str
    nodes: list[int]
    """As they were taken up."""
    peak_bytes: int
    """Largest number of bytes in InputBuffers, those of running nodes included."""
    makespan_ns: int
    threads: list[ThreadCourse]
    """By queue."""
    course: list[tuple[int, int]]
    """Times at which the bytes in InputBuffers changed, and how many they were then."""


def plan(trace: Trace, graph_task: int) -> Plan:
    """What was recorded of a graph task.

    Raises:
        agviz.errors.AgvizError: it did not finish, or the events of some nodes were left out.
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    task = trace.graph_task(graph_task)
    if task.status is not GraphTaskStatus.FINISHED:
        raise AgvizError(
            f"backward pass {graph_task} of {trace.path} did not finish ({task.status}):"
            " how long its other nodes take is not known"
        )
    nodes = trace.nodes(graph_task)
    if any(node.status is NodeStatus.UNKNOWN for node in nodes):
        raise AgvizError(
            f"{trace.path} was recorded with --nodes: how long the other nodes took is not known"
        )
    times = [0] * len(nodes)
    done = [False] * len(nodes)
    runs = done.copy()
    executions = trace.executions(graph_task)
    for row, self_ns in zip(executions, trace.self_times(graph_task), strict=True):
        times[row.node] = max(0, self_ns)
        runs[row.node] = True
        done[row.node] = row.status is NodeStatus.DONE
    arrivals = trace.arrivals(graph_task)
    held: dict[tuple[int, int], list[int]] = {}
    for arrival in arrivals:
        held.setdefault((arrival.node, arrival.slot), []).append(arrival.nbytes)
    return Plan(
        queues=[node.queue for node in nodes],
        sequence_nrs=[node.sequence_nr for node in nodes],
        runs=runs,
        times_ns=times,
        handings=_handings(trace.edges(graph_task), arrivals, done),
        held=held,
        given=[(arrival.node, arrival.slot) for arrival in arrivals if arrival.producer < 0],
    )


def _handings(
    edges: Sequence[EdgeRow], arrivals: Sequence[ArrivalRow], done: Sequence[bool]
) -> list[list[Handing]]:
    """Which edge brought a gradient: arrivals describe those only, in order of a node's outputs."""
    brought: list[deque[tuple[int, int]]] = [deque() for _ in done]
    for row in arrivals:
        if row.producer >= 0:
            brought[row.producer].append((row.node, row.slot))
    found: list[list[Handing]] = [[] for _ in done]
    for edge in edges:
        if done[edge.producer]:
            place, still = (edge.consumer, edge.slot), brought[edge.producer]
            has_gradient = bool(still) and still[0] == place
            if has_gradient:
                still.popleft()
            found[edge.producer].append(Handing(*place, has_gradient))
    return found


def simulate(plan: Plan, order: str) -> Schedule:
    """How the graph task would go (Note [Simulation]).

    Args:
        plan: what is to be done.
        order: one of :data:`ORDERS`.
    """
    return _Simulation(plan, order).run()


class _Buffers:
    """What is in the InputBuffers."""

    def __init__(self, plan: Plan) -> None:
        self._held = plan.held
        self._arrived: Counter[tuple[int, int]] = Counter()
        self._of_node: Counter[int] = Counter()
        self.live = 0

    def arrive(self, node: int, slot: int) -> bool:
        """A gradient arrives. Returns whether the slot was empty."""
        place = node, slot
        held, count = self._held[place], self._arrived[place]
        more = held[count] - (held[count - 1] if count else 0)
        self._arrived[place] = count + 1
        self._of_node[node] += more
        self.live += more
        return not count

    def let_go(self, node: int) -> None:
        """The node finished."""
        self.live -= self._of_node.pop(node, 0)

    def growth(self, node: int, handings: Sequence[Handing]) -> int:
        """By how much running a node would change the bytes, sums taking no room of their own."""
        empty = {
            (handing.consumer, handing.slot)
            for handing in handings
            if handing.has_gradient and not self._arrived[handing.consumer, handing.slot]
        }
        return sum(self._held[place][0] for place in empty) - self._of_node[node]


class _Simulation:
    def __init__(self, plan: Plan, order: str) -> None:
        self._plan = plan
        self._order = order
        self._buffers = _Buffers(plan)
        self._missing = plan.dependencies
        make = ORDERS[order]
        self._queues = {
            queue: make(plan, self._buffers)
            for queue in sorted({q for q, runs in zip(plan.queues, plan.runs, strict=True) if runs})
        }
        self._running: list[tuple[int, int, int]] = []
        """When each finishes, its place in the order in which they started, and the node."""
        self._started: list[int] = []
        self._course: list[tuple[int, int]] = []
        self._peak = 0
        self._ends = dict.fromkeys(self._queues, 0)
        self._feeders: dict[tuple[int, int], list[int]] = {}
        if any(isinstance(queue, _LeastMemory) for queue in self._queues.values()):
            for producer, handings in enumerate(plan.handings):
                for handing in handings:
                    if handing.has_gradient:
                        place = handing.consumer, handing.slot
                        self._feeders.setdefault(place, []).append(producer)

    def run(self) -> Schedule:
        plan = self._plan
        for place in plan.given:
            self._arrive(0, *place)
        if plan.runs and plan.runs[0]:
            self._queues[plan.queues[0]].push(0)
        idle = set(self._queues)
        now = 0
        while True:
            for number in sorted(idle):
                if self._queues[number]:
                    idle.remove(number)
                    self._start(now, self._queues[number].pop())
            if not self._running:
                break
            now, _, node = heapq.heappop(self._running)
            idle.add(plan.queues[node])
            self._finish(now, node)
        return Schedule(
            self._order,
            self._started,
            self._peak,
            max(self._ends.values(), default=0),
            list(self._threads()),
            self._course,
        )

    def _threads(self) -> Iterator[ThreadCourse]:
        plan = self._plan
        nodes, busy = Counter[int](), Counter[int]()
        for node in self._started:
            nodes[plan.queues[node]] += 1
            busy[plan.queues[node]] += plan.times_ns[node]
        for queue, end_ns in self._ends.items():
            yield ThreadCourse(queue, nodes[queue], busy[queue], end_ns)

    def _start(self, now: int, node: int) -> None:
        end_ns = now + self._plan.times_ns[node]
        heapq.heappush(self._running, (end_ns, len(self._started), node))
        self._started.append(node)

    def _finish(self, now: int, node: int) -> None:
        plan = self._plan
        self._ends[plan.queues[node]] = now
        self._buffers.let_go(node)
        self._course.append((now, self._buffers.live))
        ready = []
        for consumer, slot, has_gradient in plan.handings[node]:
            self._missing[consumer] -= 1
            if has_gradient:
                self._arrive(now, consumer, slot)
            if not self._missing[consumer] and plan.runs[consumer]:
                ready.append(consumer)
        for consumer in ready:
            self._queues[plan.queues[consumer]].push(consumer)

    def _arrive(self, now: int, node: int, slot: int) -> None:
        was_empty = self._buffers.arrive(node, slot)
        self._peak = max(self._peak, self._buffers.live)
        self._course.append((now, self._buffers.live))
        if was_empty:
            for producer in self._feeders.get((node, slot), ()):
                queue = self._queues.get(self._plan.queues[producer])
                if isinstance(queue, _LeastMemory):
                    queue.look_again(producer)


class _Torch:
    """As torch does: the node that was made last in the forward, AccumulateGrad before all."""

    def __init__(self, plan: Plan, _buffers: _Buffers) -> None:
        self._sequence_nrs = plan.sequence_nrs
        self._heap = TaskHeap()

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, node: int) -> None:
        self._heap.push(priority(0, self._sequence_nrs[node]), QueuedTask(0, node))

    def pop(self) -> int:
        return self._heap.pop().node


class _FirstIn:
    """First in, first out."""

    def __init__(self, _plan: Plan, _buffers: _Buffers) -> None:
        self._nodes: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._nodes)

    def push(self, node: int) -> None:
        self._nodes.append(node)

    def pop(self) -> int:
        return self._nodes.popleft()


class _LastIn(_FirstIn):
    """Last in, first out."""

    def pop(self) -> int:
        return self._nodes.pop()


class _LeastMemory:
    """The node after which the fewest bytes are in InputBuffers; of several, torch's.

    How much a node adds can only become less while it waits, when another one fills a slot that it
    gives a gradient to. It then is in the heap twice, and the older entry comes too late.
    """

    def __init__(self, plan: Plan, buffers: _Buffers) -> None:
        self._plan = plan
        self._buffers = buffers
        self._heap = TaskHeap()
        self._ready: set[int] = set()

    def __len__(self) -> int:
        return len(self._ready)

    def push(self, node: int) -> None:
        self._ready.add(node)
        self.look_again(node)

    def look_again(self, node: int) -> None:
        if node in self._ready:
            growth = self._buffers.growth(node, self._plan.handings[node])
            key = growth, priority(0, self._plan.sequence_nrs[node])
            self._heap.push(key, QueuedTask(0, node))

    def pop(self) -> int:
        while True:
            node = self._heap.pop().node
            if node in self._ready:
                self._ready.remove(node)
                return node


ORDERS: Final[dict[str, Callable[[Plan, _Buffers], _Queue]]] = {
    "torch": _Torch,
    "fifo": _FirstIn,
    "lifo": _LastIn,
    "memory": _LeastMemory,
}
"""What makes a queue, by name of its order."""
