"""One backward pass as a graph to be drawn: what the trace says, arranged for a reader's eye.

The graph is torch's own, with one change: an ``AccumulateGrad`` becomes a line of every node that
feeds it, one copy for each use. Those nodes say nothing but the name of a parameter, and a shared
one draws long edges across the whole picture. Everything here is iterative: graphs are deep.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.default_pass import default_pass, outermost
from agviz.errors import TraceError
from agviz.graph.critical import critical_path
from agviz.graph.inside import Inside, NestedPasses
from agviz.graph.marks import Marks
from agviz.traces import inferred
from agviz.traces.rows import (
    EdgeRow,
    GraphTaskRow,
    NodeRow,
    NodeStatus,
    ThreadRow,
)
from agviz.words.labels import queue_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agviz.traces.reader import Trace

LEAF_SEQUENCE_NR = 2**64 - 1
"""What torch gives AccumulateGrad: it runs before every other ready node."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """An AccumulateGrad, as a line of one node that feeds it."""

    row: NodeRow
    edge: EdgeRow
    """The edge by which this node feeds it."""
    use: int
    """Which of its uses this is, from 1, in the order in which the nodes are executed."""
    uses: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node to draw, with the parameters it feeds."""

    row: NodeRow
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A gradient's way from one drawn node to another."""

    row: EdgeRow
    shape: tuple[int, ...] | None
    """Shape of the gradient, where it was recorded."""
    meeting: int
    """Number of gradients that arrive in this slot of the consumer; above 1 they are added up."""
    called: int = -1
    """The pass that begins at the consumer and that the producer called; -1: a gradient's way."""

    @property
    def is_call(self) -> bool:
        """Whether no gradient flows here."""
        return self.called >= 0


@dataclass(frozen=True, slots=True)
class ThreadLane:
    """One thread, in the order in which lanes are drawn."""

    position: int
    """From 0."""
    name: str
    """``caller`` or ``device 0``; with the thread's number where that names several."""


class Queue(NamedTuple):
    """A ReadyQueue at some moment."""

    name: str
    tasks: int | None
    """How many it held; None: not known, for inference was withdrawn."""
    nodes: tuple[int, ...]
    """Of the graph task, in the order in which they would be popped; the first of them."""


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The engine's state right after one event."""

    seq: int
    time_ns: int
    """Since the graph task began."""
    queues: tuple[Queue, ...]
    waiting: Mapping[int, int]
    """Nodes with gradients in their InputBuffers, and how many bytes those are."""
    later: Mapping[int, int]
    """Nodes that are taken up only later, and their places in the order of execution then."""


class Differs(StrEnum):
    """How a node of one recording is in another."""

    ONLY_HERE = "only here"
    ONLY_THERE = "only there"
    FIRST = "differs first"
    """Nothing differs in what it was given."""
    AFTERWARDS = "differs"


@dataclass(frozen=True, slots=True)
class Difference:
    """Two graph tasks in one graph: that of another recording, laid over this one."""

    other: str
    """The other recording."""
    nodes: Mapping[int, Differs]
    edges: Mapping[tuple[int, int], Differs]
    """By producer and output: edges that only one of them has."""
    about: Mapping[int, str]
    """What differs at a node, in words."""
    summary: tuple[str, ...]
    """Where they part, in sentences."""


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """One graph task, ready to be folded and drawn."""

    title: str
    """The recorded script, or empty."""
    task: GraphTaskRow
    """The pass; others may be :attr:`inside` of it."""
    nodes: tuple[Node, ...]
    """In an order in which every producer is before its consumers."""
    edges: tuple[Edge, ...]
    meeting: Mapping[int, int]
    """For every node where gradients are added up: how many, in the slot with most of them."""
    lanes: Mapping[int, ThreadLane]
    """By thread id: the threads that took up a node."""
    first_nonfinite: int | None
    """Index of the node at which gradients became non-finite first."""
    marks: Marks = field(default_factory=Marks)
    moment: StateSnapshot | None = None
    """The moment at which it is shown; None: as it ended."""
    difference: Difference | None = None
    """How it differs from another recording; None: it is not compared."""
    cut: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Nodes that the view shows without some neighbours: how many of those feed it, are fed."""
    notes: tuple[str, ...] = ()
    """What the view leaves out, in sentences."""
    ran: bool = True
    """False: the graph of a loss, before anything of it was executed."""

    inside: Mapping[int, Inside] = field(default_factory=dict)
    """The passes that its nodes called, and theirs, by graph task; outer ones first."""
    others: tuple[GraphTaskRow, ...] = ()
    """The other passes of the trace that are inside of none."""
    is_observed: bool = False
    """Whether torch's own engine ran: what queues and InputBuffers hold is inferred."""

    def turn(self, row: NodeRow) -> str:
        """A node's turn in execution: ``12``, or ``5.3``, the third to run inside of the fifth.

        Of one that is not taken up at the moment that is shown: the turn that it had later.
        """
        order = self.order(row)
        if order is None:
            return ""
        inner = self.inside.get(row.graph_task)
        return str(order) if inner is None else f"{inner.turns}{order + inner.before}"

    def order(self, row: NodeRow) -> int | None:
        """A node's place in the order of execution of its pass, as for :meth:`turn`."""
        later = {} if self.moment is None else self.moment.later
        return later.get(row.index, row.order)

    @property
    def size(self) -> int:
        """Number of nodes that torch's graphs have, here and inside."""
        return self.task.nodes + sum(inner.task.nodes for inner in self.inside.values())

    @property
    def folded_leaves(self) -> int:
        """Number of AccumulateGrad nodes that became lines of others."""
        return len({leaf.row.index for node in self.nodes for leaf in node.leaves})


def read_graph(
    trace: Trace, graph_task: int | None = None, *, saved: bool = False, inside: bool = True
) -> TaskGraph:
    """Read one graph task, and those that its nodes called.

    Args:
        trace: where it is recorded.
        graph_task: its id; None: the user's pass that
            :func:`agviz.analysis.default_pass.default_pass` chooses, or that is around that one.
        saved: read which tensors nodes had saved.
        inside: read those that its nodes called, too.

    Raises:
        agviz.errors.TraceError: no such graph task, or it has no graph.
    """
    known = trace.graph_tasks
    if graph_task is None:
        graph_task = outermost(known, default_pass(trace))
    task = trace.graph_task(graph_task)
    if not task.nodes:
        raise TraceError(
            f"Graph task {graph_task} of {trace.path} ended before its graph was walked: "
            "there is nothing to draw."
        )
    passes = NestedPasses(trace, saved=saved)
    passes.add(task)
    if inside:
        passes.add_inside(known)
    around = outermost(known, graph_task)
    return build_graph(
        task,
        passes.rows,
        passes.edges,
        trace.threads,
        first_nonfinite=passes.first_nonfinite,
        title=trace.meta.script,
        marks=passes.marks,
        calls=passes.calls,
        inside=passes.inside,
        others=tuple(each for each in known if each.parent < 0 and each.id != around),
        is_observed=inferred.is_observed(trace.meta),
    )


def build_graph(
    task: GraphTaskRow,
    rows: Sequence[NodeRow],
    edge_rows: Iterable[EdgeRow],
    threads: Iterable[ThreadRow],
    *,
    first_nonfinite: int | None = None,
    title: str = "",
    marks: Marks | None = None,
    ran: bool = True,
    calls: Sequence[EdgeRow] = (),
    inside: Mapping[int, Inside] | None = None,
    others: tuple[GraphTaskRow, ...] = (),
    is_observed: bool = False,
) -> TaskGraph:
    """Build the graph from rows; an edge to or from a node that is not there is left out."""
    rows = list(rows)
    count = len(rows)
    known = [e for e in edge_rows if 0 <= e.producer < count and 0 <= e.consumer < count]
    has_producer = {edge.consumer for edge in known}
    feeds_nobody = set(range(count)) - {edge.producer for edge in known}
    folded = {
        row.index
        for row in rows
        if row.is_leaf
        and row.index in has_producer
        and row.index in feeds_nobody
        and row.status is not NodeStatus.FAILED
    }
    edges = [edge for edge in known if edge.consumer not in folded]
    order = topological_order(
        [row.index for row in rows if row.index not in folded],
        [*edges, *calls],
        [LEAF_SEQUENCE_NR if row.sequence_nr is None else row.sequence_nr for row in rows],
    )
    leaves = _leaves(rows, [edge for edge in known if edge.consumer in folded], order)
    meeting = Counter((edge.consumer, edge.slot) for edge in known)
    # A node's time holds that of the passes it called, which are on no path for themselves.
    times = {
        row.index: row.duration_ns
        for row in rows
        if row.duration_ns is not None and row.graph_task == task.id
    }
    path = critical_path([*order, *sorted(folded)], known, times)
    return TaskGraph(
        title=title,
        task=task,
        nodes=tuple(Node(rows[index], tuple(leaves.get(index, ()))) for index in order),
        edges=(
            *(Edge(edge, _shape(edge, rows), meeting[edge.consumer, edge.slot]) for edge in edges),
            *(Edge(edge, None, 1, rows[edge.consumer].graph_task) for edge in calls),
        ),
        meeting=_most_meeting(meeting),
        lanes=thread_lanes((row.thread for row in rows if row.thread is not None), threads),
        first_nonfinite=first_nonfinite,
        marks=replace(marks or Marks(), critical=path),
        ran=ran,
        inside=inside or {},
        others=others,
        is_observed=is_observed,
    )


def as_it_ran(graph: TaskGraph) -> TaskGraph:
    """The same with the nodes in the order in which they were taken up, as far as they were."""
    ran = [node.row for node in graph.nodes if node.row.order is not None]
    # Turns are counted in each pass; the clock is the same for all.
    ran.sort(key=lambda row: (row.start_ns if graph.inside else row.order) or 0)
    places = {row.index: -place for place, row in enumerate(ran)}
    order = topological_order(
        [node.row.index for node in graph.nodes],
        [edge.row for edge in graph.edges],
        {node.row.index: places.get(node.row.index, -len(ran)) for node in graph.nodes},
    )
    by_index = {node.row.index: node for node in graph.nodes}
    return replace(graph, nodes=tuple(by_index[index] for index in order))


def topological_order(
    nodes: Sequence[int],
    edges: Iterable[EdgeRow],
    sequence_nr: Sequence[int] | Mapping[int, int],
) -> list[int]:
    """The order in which a single queue would run the nodes: by sequence number, when ready.

    Unlike the recorded order it doesn't depend on how threads happened to take turns. Nodes on a
    ring, which only a damaged file has, come last.
    """
    following: defaultdict[int, list[int]] = defaultdict(list)
    missing = dict.fromkeys(nodes, 0)
    for edge in edges:
        following[edge.producer].append(edge.consumer)
        missing[edge.consumer] += 1
    ready = [(-sequence_nr[index], index) for index in nodes if not missing[index]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for consumer in following[index]:
            missing[consumer] -= 1
            if not missing[consumer]:
                heapq.heappush(ready, (-sequence_nr[consumer], consumer))
    if len(order) < len(nodes):
        done = set(order)
        order.extend(index for index in nodes if index not in done)
    return order


def _leaves(
    rows: Sequence[NodeRow], edges: Iterable[EdgeRow], order: Sequence[int]
) -> dict[int, list[Leaf]]:
    position = {index: place for place, index in enumerate(order)}
    by_use = sorted(edges, key=lambda edge: (position[edge.producer], edge.output))
    uses = Counter(edge.consumer for edge in by_use)
    seen: Counter[int] = Counter()
    leaves: defaultdict[int, list[Leaf]] = defaultdict(list)
    for edge in by_use:
        seen[edge.consumer] += 1
        leaf = Leaf(rows[edge.consumer], edge, seen[edge.consumer], uses[edge.consumer])
        leaves[edge.producer].append(leaf)
    return leaves


def _most_meeting(meeting: Mapping[tuple[int, int], int]) -> dict[int, int]:
    most: dict[int, int] = {}
    for (consumer, _), count in meeting.items():
        if count > 1:
            most[consumer] = max(count, most.get(consumer, 0))
    return most


def _shape(edge: EdgeRow, rows: Sequence[NodeRow]) -> tuple[int, ...] | None:
    received = rows[edge.consumer].input_shapes
    if received is not None and edge.slot < len(received):
        return received[edge.slot]
    produced = rows[edge.producer].output_shapes
    return produced[edge.output] if edge.output < len(produced) else None


def thread_lanes(used: Iterable[int], threads: Iterable[ThreadRow]) -> dict[int, ThreadLane]:
    """The lanes of the threads that took up nodes, in their order: callers, then devices."""
    queues = {thread.id: thread.queue for thread in threads}
    order = sorted(set(used), key=lambda thread: (queues.get(thread, -1), thread))
    names = {thread: queue_label(queues.get(thread, -1)) for thread in order}
    shared = Counter(names.values())
    return {
        thread: ThreadLane(
            position,
            names[thread] if shared[names[thread]] == 1 else f"{names[thread]} (thread {thread})",
        )
        for position, thread in enumerate(order)
    }
