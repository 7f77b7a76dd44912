"""A small scheduler that acts out backward passes on made-up graphs, without torch.

It emits what the engine would: with several devices its "threads" take turns at random, and a node
may be left half done while others go on. The order in which a queue gives its tasks away is found
by searching for the best one, ties by a replica of libstdc++'s ``push_heap`` and ``pop_heap``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from agviz_engine import events
from agviz_engine.instruments import Live, Registry
from tests.emitting import emit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

ACCUMULATE_GRAD = 2**64 - 1


@dataclass
class SimulatedNode:
    """Looks like a NodeRef."""

    index: int
    name: str
    sequence_nr: int
    device: int
    num_inputs: int = 0
    next_edges: tuple[Any, ...] = ()
    topological_nr: int = 0
    input_shapes: str = ""
    is_graph_root: bool = False
    node: Any = field(default_factory=SimpleNamespace)

    @property
    def is_accumulate_grad(self) -> bool:
        return self.sequence_nr == ACCUMULATE_GRAD

    @staticmethod
    def columns(nodes: Sequence[SimulatedNode]) -> tuple[list[Any], ...]:
        """As :class:`~agviz_engine.node.Columns`."""
        numbers = [-1 if node.is_accumulate_grad else node.sequence_nr for node in nodes]
        lengths = [node.topological_nr for node in nodes]
        shapes = [node.input_shapes for node in nodes]
        counts = [node.num_inputs for node in nodes]
        return [node.name for node in nodes], numbers, lengths, shapes, counts


def random_graph(rng: Random, size: int, devices: int = 0) -> list[SimulatedNode]:
    """A connected graph: node 0 is the root, edges lead to higher indices, sinks are leaves."""
    nodes = [
        SimulatedNode(
            index,
            f"Simulated{index % 7}Backward0",
            rng.randrange(size),
            rng.randrange(devices) if devices else -1,
            num_inputs=1,
        )
        for index in range(size)
    ]
    edges: list[list[Any]] = [[] for _ in nodes]
    for consumer in nodes[1:]:
        for producer in {rng.randrange(consumer.index) for _ in range(rng.randint(1, 2))}:
            slot = rng.randrange(2)
            consumer.num_inputs = max(consumer.num_inputs, slot + 1)
            edges[producer].append((consumer, slot))
            if rng.random() < 0.1:
                edges[producer].append(None)
    for node, outgoing in zip(nodes, edges, strict=True):
        node.next_edges = tuple(outgoing)
        if not any(outgoing):
            node.name = "torch::autograd::AccumulateGrad"
            node.sequence_nr = ACCUMULATE_GRAD
            node.device = -1
    return nodes


class LibstdcxxQueue:
    """``std::priority_queue`` of torch's NodeTasks as libstdc++ implements it."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, SimulatedNode, int]] = []  # depth, node, graph task

    @staticmethod
    def _less(a: tuple[int, SimulatedNode, int], b: tuple[int, SimulatedNode, int]) -> bool:
        return a[1].sequence_nr < b[1].sequence_nr if a[0] == b[0] else a[0] < b[0]

    def _push_heap(self, hole: int, top: int, value: tuple[int, SimulatedNode, int]) -> None:
        parent = (hole - 1) // 2
        while hole > top and self._less(self.heap[parent], value):
            self.heap[hole] = self.heap[parent]
            hole = parent
            parent = (hole - 1) // 2
        self.heap[hole] = value

    def push(self, value: tuple[int, SimulatedNode, int]) -> None:
        self.heap.append(value)
        self._push_heap(len(self.heap) - 1, 0, value)

    def pop(self) -> tuple[int, SimulatedNode, int]:
        first = self.heap[0]
        value = self.heap.pop()
        length = len(self.heap)
        if not length:
            return first
        hole = child = 0
        while child < (length - 1) // 2:  # __adjust_heap
            child = 2 * (child + 1)
            if self._less(self.heap[child], self.heap[child - 1]):
                child -= 1
            self.heap[hole] = self.heap[child]
            hole = child
        if length % 2 == 0 and child == (length - 2) // 2:
            child = 2 * (child + 1)
            self.heap[hole] = self.heap[child - 1]
            hole = child - 1
        self._push_heap(hole, 0, value)
        return first


@dataclass
class SimulatedTask:
    """One graph task under way."""

    number: int
    depth: int
    nodes: list[SimulatedNode]
    dependencies: list[int]
    filled: set[tuple[int, int]] = field(default_factory=set)
    working: dict[int, SimulatedNode] = field(default_factory=dict)
    executed: int = 0
    failed: bool = False


def live_view(task: SimulatedTask) -> Live:
    """Looks like the live view of a GraphTask."""
    facts = SimpleNamespace(
        id=task.number,
        nodes=task.nodes,
        dependencies=task.dependencies,
        fan_in=[],
        threaded=any(node.device >= 0 for node in task.nodes),
        accumulate_grad=False,
    )
    return Live(facts)  # type: ignore[arg-type]


class Simulator:
    """Acts out graph tasks one after the other; ``registry`` observes the events."""

    def __init__(self, registry: Registry, rng: Random, *, devices: int = 0) -> None:
        self.registry = registry
        self.rng = rng
        self.emitted: list[events.Event] = []
        self.queues: dict[int, LibstdcxxQueue] = {}
        self._seq = itertools.count()
        self._graph_task = itertools.count()
        self._clock = itertools.count(1_000_000_000, 1_000)
        self._live = Live(None)
        for thread in range(devices + 1):
            name = f"pt_autograd_{thread - 1}" if thread else "MainThread"
            self._tell(events.WorkerStarted, thread, -1, name, thread - 1, 1000 + thread)

    def backward(
        self,
        nodes: list[SimulatedNode],
        *,
        fail_at: int | None = None,
        nan_at: int | None = None,
        parent: tuple[int, int, int] = (-1, -1, -1),
        reentrant: list[SimulatedNode] | None = None,
    ) -> int:
        """One graph task.

        Args:
            nodes: the graph.
            fail_at: the node with this index raises.
            nan_at: the node with this index gives NaN.
            parent: graph task, node and reentrant depth of the one that makes this call.
            reentrant: the node with index 1 runs a backward through this graph.

        Returns:
            The number of the graph task.
        """
        task = self._begin(nodes, parent)
        while not task.failed:
            idle = [
                device
                for device, queue in sorted(self.queues.items())
                if device not in task.working and queue.heap and queue.heap[0][2] == task.number
            ]
            if not idle and not task.working:
                self._tell(events.GraphTaskFinished, 0, task.number, task.executed)
                break
            queue = self.rng.choice([*idle, *task.working])
            if queue not in task.working:
                self._start(task, queue)
                continue
            node = task.working.pop(queue)
            if node.index == 1 and reentrant:
                self.backward(reentrant, parent=(task.number, 1, task.depth))
                self._live = live_view(task)
            if node.index == fail_at:
                self._fail(task, queue + 1, node)
            else:
                self._finish(task, queue + 1, node, nan=int(node.index == nan_at))
        return task.number

    def _begin(self, nodes: list[SimulatedNode], parent: tuple[int, int, int]) -> SimulatedTask:
        task = SimulatedTask(next(self._graph_task), parent[2] + 1, nodes, [0] * len(nodes))
        self._live = live_view(task)
        how = *parent[:2], task.depth, False, False, True, 1, 0
        self._tell(events.GraphTaskBegun, 0, task.number, *how)
        edges = [edge for node in nodes for edge in node.next_edges if edge]
        for consumer, _ in edges:
            task.dependencies[consumer.index] += 1
        self._tell(events.DependenciesComputed, 0, task.number, len(nodes), len(edges))
        self._tell(events.GradientAccumulated, 0, task.number, 0, -1, 0, False, 8)
        self._push(task, 0, nodes[0])
        return task

    def _start(self, task: SimulatedTask, queue: int) -> None:
        _, node, _ = self.queues[queue].pop()
        size = len(self.queues[queue].heap)
        pop = events.QueuePop, (queue, node.index, size)
        self._tell_step(queue + 1, task.number, pop, (events.NodeStarted, (node.index,)))
        task.working[queue] = node

    def _fail(self, task: SimulatedTask, thread: int, node: SimulatedNode) -> None:
        error = "RuntimeError", "no\nway"
        self._tell(events.NodeFailed, thread, task.number, node.index, *error)
        for queue in self.queues.values():
            queue.heap.clear()
        self._tell(events.GraphTaskFailed, 0, task.number, *error)
        task.failed = True

    def _finish(self, task: SimulatedTask, thread: int, node: SimulatedNode, *, nan: int) -> None:
        if node.is_accumulate_grad:
            self._tell(events.LeafAccumulated, thread, task.number, node.index)
        for output, edge in enumerate(node.next_edges):
            if edge:
                found = node.index, output, nan, 0, 0
                self._tell(events.NonFiniteChecked, thread, task.number, *found)
        task.executed += 1
        outputs = len(node.next_edges)
        self._tell(events.NodeFinished, thread, task.number, node.index, outputs)
        ready = []
        for consumer, slot in filter(None, node.next_edges):
            index = consumer.index
            task.dependencies[index] -= 1
            remaining = task.dependencies[index]
            of = index, node.index
            added = (index, slot) in task.filled
            task.filled.add((index, slot))
            decremented = events.DependencyDecremented, (*of, remaining)
            arrived = events.GradientAccumulated, (*of, slot, added, 8)
            self._tell_step(thread, task.number, decremented, arrived)
            if not remaining:
                ready.append(consumer)
        for consumer in ready:
            self._push(task, thread, consumer)

    def _push(self, task: SimulatedTask, thread: int, node: SimulatedNode) -> None:
        queue = self.queues.setdefault(node.device, LibstdcxxQueue())
        queue.push((task.depth, node, task.number))
        size = len(queue.heap)
        self._tell(events.QueuePush, thread, task.number, node.device, node.index, size)

    def _tell(self, kind: type[Any], thread: int, graph_task: int, *fields: Any) -> None:
        self._tell_step(thread, graph_task, (kind, fields))

    def _tell_step(
        self, thread: int, graph_task: int, *step: tuple[type[Any], tuple[Any, ...]]
    ) -> None:
        """Events that the engine emits as one: they have one time."""
        now = next(self._clock)
        if step[0][0] is events.NodeFinished:
            next(self._seq)  # it is the second event of its step
        made = [kind(next(self._seq), now, thread, graph_task, *fields) for kind, fields in step]
        self.emitted += made
        emit(self.registry, made, self._live)
