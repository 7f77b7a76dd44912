"""Nodes: all statements that select from the tables ``node`` and ``edge``, and rows of executions.

Of a graph task whose nodes are asked for, columns of integers are read; a row is made for whom is
asked for.
"""

from __future__ import annotations

import gc
import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter, ne
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, overload

from agviz.traces.database import DURING, given, of, place
from agviz.traces.events import FROM_MEASURED
from agviz.traces.rows import (
    LEAF,
    EdgeRow,
    ExecutionRow,
    GraphTaskStatus,
    LeafNorm,
    NodeRow,
    NodeStatus,
    NonFiniteCounts,
    Shape,
)
from agviz.traces.schema import (
    AT,
    CHECK,
    CHECKED,
    EXECUTION,
    FAILED,
    FINISHED,
    LEAF_ACCUMULATED,
    SKIPPED,
    STARTED,
)
from agviz.traces.state import GraphShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agviz.errors import TraceError
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.events import EventReader
    from agviz.traces.intervals import Moments
    from agviz.traces.rows import Frame, GraphTaskRow
    from agviz.traces.stacks import StoredStacks

_SHAPES: Final = 8
"""Column of the shapes among those of a node."""
_MOST_OUTPUTS: Final = 100_000
_NEVER: Final = 2**63 - 1
_CHECKED: Final = f"{CHECK} AND {DURING}"
_OF_LEAF: Final = (
    " AND node.sequence_nr IS NULL WHERE health.seq >= ? AND health.seq < ?"
    " AND (norm IS NOT NULL OR nan + posinf + neginf > 0)"
)
_OF_NODE: Final = "SELECT node.graph_task, node.idx, node.parameter, norm, nan + posinf + neginf"
_ARRIVED_AT_LEAF: Final = (
    f"{_OF_NODE} FROM {FROM_MEASURED} JOIN edge ON edge.graph_task = event.graph_task"
    " AND edge.producer = event.node AND edge.output = event.a JOIN node"
    f" ON node.graph_task = edge.graph_task AND node.idx = edge.consumer{_OF_LEAF} AND {CHECK}"
)
_ACCUMULATED: Final = (
    f"{_OF_NODE} FROM {FROM_MEASURED} JOIN node"
    f" ON node.graph_task = event.graph_task AND node.idx = event.node{_OF_LEAF}"
    f" AND event.kind = {LEAF_ACCUMULATED}"
)
"""What ``.grad`` was where it may differ from what arrived."""


class EdgeNorm(NamedTuple):
    """A gradient that a node put out, and the edge along which it went."""

    producer: int
    output: int
    consumer: int
    slot: int
    norm: float | None
    """Of its finite elements; None: it was not measured, or none is finite."""
    bad: int
    """How many are not."""


@dataclass(frozen=True, kw_only=True)
class NodeColumns:
    """What rows are made of. Everything was checked: making a row neither reads nor raises."""

    graph_task: int
    node: Sequence[tuple[Any, ...]] | Mapping[int, tuple[Any, ...]]
    """Sequence_nr, topological_nr, queue, num_inputs, dependencies, name, parameter, module, shapes
    and recorded, by node: integers, and None where there is no number. Name to shapes are ids of
    texts."""
    edges: Sequence[tuple[int, ...]]
    """Producer, output, consumer and slot, by producer and output."""
    names: Mapping[int, tuple[str, str]]
    """Torch's names and the short ones, by id."""
    places: Mapping[int, str | None]
    """Parameters and modules, by id; None for 0."""
    shapes: Mapping[int, tuple[Shape, ...]]
    """Shapes of the inputs, by id."""
    origins: Mapping[int, int]
    """Ids of stacks, by node."""
    stacks: StoredStacks
    executions: Mapping[int, ExecutionRow]
    """By node."""
    ready: frozenset[int]
    """Nodes that entered a queue and perhaps never left it."""
    nonfinite: Mapping[int, NonFiniteCounts]
    """By node."""


class NodeLabel(NamedTuple):
    """What a picture says of a node."""

    node: int
    name: str
    """Its short name."""
    module: str
    """Path of the module that made it, or holds its parameter; empty: not known, or none."""


class Turn(NamedTuple):
    """A node that a thread took up or was through with."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    name: str
    """The node's short name."""
    is_start: bool


class PlacedNode(NamedTuple):
    """By what a node is known in another graph, without the rest of its row."""

    name: str
    """Torch's name."""
    module: str | None
    parameter: str | None
    shapes: tuple[Shape, ...] | None
    """Of its inputs; None: not known."""
    is_leaf: bool
    is_recorded: bool
    """Whether its events are in the recording."""


class NodeIdentity(NamedTuple):
    """What distinguishes a node from others, without the rest of its row."""

    node: int
    name: str
    """Torch's name."""
    sequence_nr: int | None
    """None: it is an AccumulateGrad."""
    device: int
    """Index of its queue."""
    parameter: str
    """Name of the parameter that it accumulates into; empty: none."""
    module: str
    """Path of the module whose forward made it, or that has the parameter; empty: none."""
    stack: tuple[Frame, ...]
    """Where the forward made it, outermost frame first; empty where that is not known."""


class Nodes(Sequence[NodeRow]):
    """The nodes by index. Each row is made when it is first asked for."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._rows: list[NodeRow | None] = [None] * len(columns.node)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> NodeRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[NodeRow]: ...
    def __getitem__(self, index: int | slice) -> NodeRow | list[NodeRow]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        row = self._rows[index]
        if row is None:
            row = self._rows[index] = make_row(self._columns, range(len(self))[index])
        return row

    def __iter__(self) -> Iterator[NodeRow]:
        with undisturbed():
            rows = [self[index] for index in range(len(self))]
        return iter(rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Nodes({list(self)})"


def make_row(columns: NodeColumns, index: int) -> NodeRow:
    """The row of one node, which the columns hold together with its consumers."""
    (
        sequence_nr,
        topological_nr,
        queue,
        num_inputs,
        dependencies,
        name,
        parameter,
        module,
        shapes,
        recorded,
    ) = columns.node[index]
    full_name, short = columns.names[name]
    received = columns.shapes[shapes] if shapes else None
    order = thread = start_ns = end_ns = None
    status = NodeStatus.READY if index in columns.ready else NodeStatus.WAITING
    if not recorded:
        status = NodeStatus.UNKNOWN
    execution = columns.executions.get(index)
    if execution is not None and recorded:
        _, order, _, _, thread, start_ns, end_ns, status, _ = execution
        if not order:
            order = start_ns = None
    return NodeRow(
        graph_task=columns.graph_task,
        index=index,
        name=full_name,
        short_name=short,
        sequence_nr=sequence_nr,
        topological_nr=topological_nr,
        queue=queue,
        num_inputs=num_inputs,
        dependencies=dependencies,
        parameter=columns.places[parameter],
        shape=received[0] if received and short == LEAF else None,
        module=columns.places[module],
        stack=columns.stacks[columns.origins[index]] if index in columns.origins else (),
        status=status,
        order=order,
        thread=thread,
        start_ns=start_ns,
        end_ns=end_ns,
        input_shapes=received,
        output_shapes=_output_shapes(columns, index),
        nonfinite=columns.nonfinite.get(index),
    )


def _output_shapes(columns: NodeColumns, index: int) -> tuple[Shape | None, ...]:
    edges, node, shapes = columns.edges, columns.node, columns.shapes
    produced: list[Shape | None] = []
    for at in range(bisect_left(edges, (index,)), len(edges)):
        producer, output, consumer, slot = edges[at]
        if producer != index:
            break
        produced += [None] * (output + 1 - len(produced))
        number = node[consumer][_SHAPES]
        received = shapes[number] if number else ()
        if 0 <= slot < len(received):
            produced[output] = received[slot]
    return tuple(produced)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Pause the garbage collector while many rows are made.

    They stay, so it would find nothing; looking for it takes as long as making them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def short_name(name: str) -> str:
    """A node's name without the namespaces in front of it."""
    return re.sub(r"^(\w+::)+", "", name)


END: Final = {
    FINISHED: NodeStatus.DONE,
    FAILED: NodeStatus.FAILED,
    SKIPPED: NodeStatus.SKIPPED,
}


def self_times(rows: Sequence[ExecutionRow]) -> list[int]:
    """Time in ns that each execution took without those that ran inside it on the same thread.

    A node runs others inside it where it makes a reentrant call. The self times of a thread add up
    to the time in which it was busy. An execution that did not end, or never began, has none.

    Args:
        rows: in order of NodeStarted; all that are meant to be taken off.
    """
    found = [0] * len(rows)
    inside: dict[int, list[tuple[int, int]]] = {}
    """By thread: when the executions end that are under way, innermost last, and their places."""
    for number, row in enumerate(rows):
        start, end = row.start_ns, row.end_ns
        if not row.order or end is None:
            continue
        under_way = inside.setdefault(row.thread, [])
        while under_way and under_way[-1][0] <= start:
            under_way.pop()
        found[number] = end - start
        if under_way:
            until, outer = under_way[-1]
            found[outer] -= min(end, until) - start
        under_way.append((end, number))
    return found


class NodeReader:
    """What a trace file says of nodes, edges and executions at one moment.

    Args:
        database: the file.
        contents: what is known of it.
        events: its events.
    """

    def __init__(self, database: Database, contents: Contents, events: EventReader) -> None:
        self._database = database
        self._contents = contents
        self.events = events
        """Its events."""
        self._names: dict[int, list[str]] = {}
        self._nodes: dict[int, Nodes] = {}
        self._counted: dict[int, tuple[int, int]] = {}
        """By graph task: a moment that was asked for, and the nodes taken up until then."""
        self._executions: dict[int | None, list[ExecutionRow]] = {}
        self._self_times: dict[int | None, list[int]] = {}

    def nodes(self, graph_task: int) -> Nodes:
        """By index."""
        nodes = self._nodes.get(graph_task)
        if nodes is None:
            with undisturbed():
                nodes = self._nodes[graph_task] = Nodes(self._read_columns(graph_task))
        return nodes

    def node(self, graph_task: int, index: int, most_outputs: int = _NEVER) -> NodeRow | None:
        """One node, without reading the others where they are not known; None: there is none.

        Of more than ``most_outputs`` outputs, only the first have their shapes.
        """
        nodes = self._nodes.get(graph_task)
        if nodes is not None:
            return nodes[index] if 0 <= index < len(nodes) else None
        if not 0 <= index <= _NEVER:
            return None
        columns = self._read_columns(graph_task, index, most_outputs)
        return make_row(columns, index) if index in columns.node else None

    def edges(self, graph_task: int) -> list[EdgeRow]:
        """By producer and output."""
        with undisturbed():
            return list(map(EdgeRow._make, self._edges(graph_task)))

    def executions(self, graph_task: int | None) -> list[ExecutionRow]:
        """Nodes taken up, by NodeStarted; those skipped before they started have order 0."""
        rows = self._executions.get(graph_task)
        if rows is None:
            everything = self._executions.get(None)
            with undisturbed():
                rows = self._executions[graph_task] = (
                    self._read_executions(graph_task)
                    if everything is None
                    else [row for row in everything if row.graph_task == graph_task]
                )
        return rows

    def self_times(self, graph_task: int | None) -> list[int]:
        """The self time of each of :meth:`executions`, without reentrant graph tasks of others."""
        times = self._self_times.get(graph_task)
        if times is None:
            times = self._self_times[graph_task] = self_times(self.executions(graph_task))
        return times

    def shape(self, graph_task: int) -> GraphShape:
        """What a replay of a graph task needs of its nodes."""
        rows = self._database.numbers(
            "SELECT sequence_nr, dependencies, recorded FROM node WHERE graph_task = ?"
            " ORDER BY idx",
            graph_task,
        )
        numbers, dependencies, recorded = list(zip(*rows, strict=True)) or [()] * 3
        if None in dependencies:
            raise self._database.damaged("a node lacks a fact")
        left_out = frozenset(node for node, known in enumerate(recorded) if not known)
        return GraphShape(numbers, cast("Sequence[int]", dependencies), left_out)

    def _origins(self, graph_task: int, only: int | None) -> dict[int, int]:
        """Ids of stacks, by node."""
        rows = self._database.integers(
            f"SELECT node, stack FROM origin WHERE graph_task = ? {of(only, 'node')}",  # noqa: S608
            graph_task,
            *given(only),
        )
        origins = {node: stack for node, stack in rows}  # noqa: C416 - dict() takes pairs only
        if not all(stack in self._contents.stacks for stack in set(origins.values())):
            raise self._database.damaged("a stack is missing")
        return origins

    def _edges(
        self, graph_task: int, only: int | None = None, most: int = _NEVER
    ) -> list[tuple[int, ...]]:
        """The first of the producer ``only``; None: of all."""
        rows = self._database.integers(
            "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ?"  # noqa: S608
            f" {of(only, 'producer')} ORDER BY producer, output LIMIT ?",
            graph_task,
            *given(only),
            most,
        )
        nodes = _NEVER if only is not None else len(self._short_names(graph_task))
        columns = list(zip(*rows, strict=True)) or [()] * 4
        ranges = range(nodes), range(_MOST_OUTPUTS), range(1, nodes)  # none leads to the root
        for numbers, allowed in zip(columns, ranges, strict=False):
            if numbers and not (min(numbers) in allowed and max(numbers) in allowed):
                raise self._database.damaged("an edge leads where none can")
        return rows

    def _short_names(self, graph_task: int) -> list[str]:
        """By node."""
        names = self._names.get(graph_task)
        if names is None:
            rows = self._database.integers(
                "SELECT idx, name FROM node WHERE graph_task = ? ORDER BY idx", graph_task
            )
            names = self._shorten(graph_task, [row[0] for row in rows], [row[1] for row in rows])
        return names

    def _shorten(self, graph_task: int, indexes: Sequence[int], names: Sequence[int]) -> list[str]:
        """Keep the short names of all nodes, whose names are ids of texts."""
        if any(map(ne, indexes, range(len(indexes)))):
            raise self._database.damaged("a node is missing")
        short = {number: self._short(number) for number in set(names)}
        found = self._names[graph_task] = [short[number] for number in names]
        return found

    def _short(self, number: int) -> str:
        return short_name(self._contents.name(number))

    def _read_executions(
        self, graph_task: int | None, only: int | None = None
    ) -> list[ExecutionRow]:
        """Those of the node ``only``, with an order of their own; None: of all nodes."""
        numbers = self._contents.graph_tasks.ids if graph_task is None else [graph_task]
        found = [row for number in numbers for row in self._executions_of(number, only)]
        return sorted(found, key=attrgetter("seq")) if graph_task is None else found

    def _executions_of(self, graph_task: int, only: int | None) -> list[ExecutionRow]:
        moments = [
            each
            for each in self.events.moments(self._task(graph_task), only)
            if each.started is not None or each.ended is not None
        ]
        if not moments:
            return []
        names = self._short_names(graph_task) if only is None else self._name_of(graph_task, only)
        moments.sort(key=_begin)
        order = itertools.count(1)
        try:
            return [self._execution(graph_task, each, names[each.node], order) for each in moments]
        except (IndexError, KeyError) as error:
            raise self._database.damaged("an event concerns a node that is not there") from error

    def _execution(
        self, graph_task: int, moments: Moments, name: str, order: Iterator[int]
    ) -> ExecutionRow:
        start_ns = self._contents.meta.start_ns
        end_ns, status = None, NodeStatus.RUNNING
        if moments.failed is not None:
            failed_t = self.events.time_of(moments.failed)
            end_ns, status = failed_t + start_ns, NodeStatus.FAILED
        elif moments.outcome is not None:
            end_ns, status = (moments.end_t or 0) + start_ns, END[moments.outcome]
        has_started = moments.started is not None
        begin_t = moments.start_t if has_started else moments.end_t
        return ExecutionRow(
            graph_task,
            next(order) if has_started else 0,
            moments.node,
            name,
            -1 if moments.thread is None else moments.thread,
            (begin_t or 0) + start_ns,
            end_ns,
            status,
            _begin(moments),
        )

    def _name_of(self, graph_task: int, node: int) -> dict[int, str]:
        rows = self._database.integers(
            "SELECT name FROM node WHERE graph_task = ? AND idx = ?", graph_task, node
        )
        return {node: self._short(rows[0][0])} if rows else {}

    def _read_columns(
        self, graph_task: int, only: int | None = None, most_outputs: int = _NEVER
    ) -> NodeColumns:
        """The nodes of a graph task; with ``only`` as much as that one's row is made of."""
        needed = (
            "SELECT ? UNION ALL SELECT * FROM (SELECT consumer FROM edge WHERE graph_task = ?"
            " AND producer = ? ORDER BY output LIMIT ?)"
        )
        numbered: list[tuple[Any, ...]] = self._database.numbers(
            "SELECT idx, sequence_nr, topological_nr, queue, num_inputs, dependencies, name,"  # noqa: S608
            " parameter, module, shapes, recorded FROM node WHERE graph_task = ?"
            f" {'' if only is None else f'AND idx IN ({needed})'} ORDER BY idx",
            graph_task,
            *(() if only is None else (only, graph_task, only, most_outputs)),
        )
        columns = list(zip(*numbered, strict=True)) or [()] * 11
        if any(None in columns[place] for place in (0, *range(2, 11))):
            raise self._database.damaged("a node lacks a fact")
        rows = [row[1:] for row in numbered]
        indexes, *_, names, parameters, modules, shapes, _ = columns
        if only is None:
            self._shorten(graph_task, indexes, names)
        edges = self._edges(graph_task, only, most_outputs)
        if only is None:
            executed = {row.node: row for row in self.executions(graph_task)}
        else:
            if not {edge[2] for edge in edges} <= set(indexes):
                raise self._database.damaged("an edge leads to a node that is not there")
            executed = self._execution_of(graph_task, only)
        checked = _CHECKED if only is None else self.events.of_node(graph_task, only, [CHECKED])
        return NodeColumns(
            graph_task=graph_task,
            node=rows if only is None else dict(zip(indexes, rows, strict=True)),
            edges=edges,
            names={
                number: (self._contents.name(number), self._short(number)) for number in set(names)
            },
            places={
                number: self._contents.name(number) or None for number in {*parameters, *modules}
            },
            shapes={number: self._contents.shapes(number) for number in set(shapes) if number},
            origins=self._origins(graph_task, only),
            stacks=self._contents.stacks,
            executions=executed,
            ready=self._ready(graph_task, only),
            nonfinite={
                node: NonFiniteCounts(*counts)
                for node, *counts in self._database.integers(
                    f"SELECT node, sum(b), sum(c), sum(d) FROM event WHERE {checked} GROUP BY node",  # noqa: S608
                    *(place(self._task(graph_task)) if only is None else ()),
                )
            },
        )

    def _execution_of(self, graph_task: int, node: int) -> dict[int, ExecutionRow]:
        rows = self._read_executions(graph_task, node)
        if not rows:
            return {}
        row = rows[-1]
        return {node: row._replace(order=self._order(graph_task, row.seq) if row.order else 0)}

    def _order(self, graph_task: int, seq: int) -> int:
        """Number of nodes taken up until then, counted from the last moment that was asked for."""
        begin = self._task(graph_task).begin_seq
        known, order = self._counted.get(graph_task, (begin - 1, 0))
        low, high = sorted((known, seq))
        between = self.events.count_started(graph_task, low, high)
        order += between if seq > known else -between
        self._counted[graph_task] = seq, order
        return order

    def _ready(self, graph_task: int, only: int | None) -> frozenset[int]:
        """Nodes that were queued; asked for only where a graph task did not finish."""
        task = self._task(graph_task)
        if task.status is GraphTaskStatus.FINISHED:
            return frozenset()
        moments = self.events.moments(task, only)
        return frozenset(each.node for each in moments if each.pushed is not None)

    def edges_into(self, graph_task: int, node: int) -> list[EdgeRow]:
        """The edges that lead into a node, by slot."""
        rows = self._database.integers(
            "SELECT producer, output, consumer, slot FROM edge"
            " WHERE graph_task = ? AND consumer = ? ORDER BY slot, producer, output",
            graph_task,
            node,
        )
        return [EdgeRow(*row) for row in rows]

    def edges_from(self, graph_task: int, node: int, limit: int) -> list[EdgeRow]:
        """The first edges that leave a node, by output."""
        rows = self._database.integers(
            "SELECT producer, output, consumer, slot FROM edge"
            " WHERE graph_task = ? AND producer = ? ORDER BY output LIMIT ?",
            graph_task,
            node,
            limit,
        )
        return [EdgeRow(*row) for row in rows]

    def fan_out(self, graph_task: int, node: int) -> tuple[int, int]:
        """Number of edges that leave a node, and of its outputs up to the last that is needed."""
        rows = self._database.integers(
            "SELECT count(*), coalesce(max(output) + 1, 0) FROM edge"
            " WHERE graph_task = ? AND producer = ?",
            graph_task,
            node,
        )
        return rows[0][0], rows[0][1]

    def name(self, graph_task: int, node: int) -> str:
        """The short name of a node."""
        rows = self._database.integers(
            "SELECT name FROM node WHERE graph_task = ? AND idx = ?", graph_task, node
        )
        if not rows:
            raise self._database.damaged("an edge leads to a node that is not there")
        return short_name(self._contents.name(rows[0][0]))

    def identities(self, graph_task: int) -> Iterator[NodeIdentity]:
        """The nodes of a graph task, by index."""
        rows = self._database.integers(
            "SELECT idx, name, coalesce(sequence_nr, -1), queue, parameter, module,"
            " coalesce(stack, 0) FROM node LEFT JOIN origin"
            " ON origin.graph_task = node.graph_task AND origin.node = node.idx"
            " WHERE node.graph_task = ? ORDER BY idx",
            graph_task,
        )
        for node, called, sequence_nr, queue, parameter, module, stack in rows:
            if stack and stack not in self._contents.stacks:
                raise self._database.damaged("a stack is missing")
            owner = self._contents.name(parameter)
            yield NodeIdentity(
                node,
                self._contents.name(called),
                None if sequence_nr < 0 else sequence_nr,
                queue,
                owner,
                owner.rpartition(".")[0] if owner else self._contents.name(module),
                self._contents.stacks[stack] if stack else (),
            )

    def labels(self, graph_task: int, first: int, count: int) -> list[NodeLabel]:
        """The next ``count`` nodes from index ``first`` on."""
        rows = self._database.integers(
            "SELECT idx, name, parameter, module FROM node WHERE graph_task = ?"
            " AND idx >= ? AND idx < ? ORDER BY idx",
            *(graph_task, first, first + count),
        )
        text = self._contents.name
        found = []
        for node, name, parameter, module in rows:
            owner = text(parameter)
            place = owner.rpartition(".")[0] if owner else text(module)
            found.append(NodeLabel(node, self._short(name), place))
        return found

    def by_line(self, fits: Callable[[str], bool]) -> dict[int, list[tuple[int, int]]]:
        """The nodes that lines of a file made, or calls on them: graph task and index, by line."""
        lines = self._contents.stacks.lines(fits)
        found: dict[int, list[tuple[int, int]]] = {}
        rows = (
            self._database.integers("SELECT graph_task, node, stack FROM origin") if lines else []
        )
        for graph_task, node, stack in rows:
            if self._contents.graph_tasks.has(graph_task):
                for line in lines.get(stack, ()):
                    found.setdefault(line, []).append((graph_task, node))
        return found

    def placed(
        self, graph_task: int, first: int, before: int
    ) -> tuple[list[PlacedNode], list[EdgeRow]]:
        """Some nodes that follow each other, by index, and the edges that leave them."""
        rows = self._database.integers(
            "SELECT idx, name, module, parameter, shapes, recorded FROM node"
            " WHERE graph_task = ? AND idx >= ? AND idx < ? ORDER BY idx",
            *(graph_task, first, before),
        )
        if any(row[0] != first + number for number, row in enumerate(rows)):
            raise self._database.damaged("a node is missing")
        text = self._contents.name
        nodes = [
            PlacedNode(
                text(called),
                text(module) or None,
                text(parameter) or None,
                self._contents.shapes(shapes) if shapes else None,
                self._short(called) == LEAF,
                bool(recorded),
            )
            for _, called, module, parameter, shapes, recorded in rows
        ]
        edges = self._database.integers(
            "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ?"
            " AND producer >= ? AND producer < ? ORDER BY producer, output",
            *(graph_task, first, before),
        )
        return nodes, list(map(EdgeRow._make, edges))

    def leaves(self, graph_task: int) -> dict[int, str]:
        """The AccumulateGrad nodes and their parameters."""
        rows = self._database.integers(
            "SELECT idx, parameter, name FROM node WHERE graph_task = ? AND sequence_nr IS NULL"
            " ORDER BY idx",
            graph_task,
        )
        return {
            node: self._contents.name(parameter)
            for node, parameter, called in rows
            if short_name(self._contents.name(called)) == LEAF
        }

    def ways(self, graph_task: int, first: int, before: int) -> list[EdgeNorm]:
        """What nodes put out between two events, and where it went, in order."""
        rows = self._database.reals(
            "SELECT event.node, event.a, edge.consumer, edge.slot, norm,"  # noqa: S608 - our words
            f" nan + posinf + neginf FROM {FROM_MEASURED}"
            " JOIN edge ON edge.graph_task = event.graph_task"
            " AND edge.producer = event.node AND edge.output = event.a"
            f" WHERE health.seq >= ? AND health.seq < ? AND {CHECK} AND +event.graph_task = ?"
            " ORDER BY health.seq",
            first,
            before,
            graph_task,
        )
        return list(map(EdgeNorm._make, rows))

    def leaf_norms(self, first: int, before: int) -> list[LeafNorm]:
        """The gradients of leaves that were measured from one event up to before another."""
        found: dict[tuple[int, int], LeafNorm] = {}
        for query in (_ARRIVED_AT_LEAF, _ACCUMULATED):
            for numbers in self._database.reals(query, first, before):
                graph_task, node, parameter, norm, bad = (number or 0 for number in numbers)
                key = int(graph_task), int(node)
                name = self._contents.name(int(parameter)) if parameter else ""
                found[key] = LeafNorm(*key, name, math.nan if bad else norm, int(parameter))
        return list(found.values())

    def graph_tasks_with(self, first: int, last: int, fits: Callable[[str], bool]) -> list[int]:
        """Those from ``first`` to ``last`` with a node whose name, module or parameter fits."""
        rows = self._database.integers(
            "SELECT DISTINCT graph_task, name, parameter, module FROM node"
            " WHERE graph_task BETWEEN ? AND ?",
            first,
            last,
        )
        good = self._good(rows, fits)
        found = {row[0] for row in rows if not good.isdisjoint(row[1:])}
        return sorted(filter(self._contents.graph_tasks.has, found))

    def nodes_with(
        self, graph_task: int, fits: Callable[[str], bool]
    ) -> list[tuple[int, int | None]]:
        """The nodes of a graph task that fit, and ``seq`` of their NodeStarted: in order of these.

        Those that never started come last, by index.
        """
        rows = self._database.integers(
            "SELECT idx, name, parameter, module FROM node WHERE graph_task = ? ORDER BY idx",
            graph_task,
        )
        good = self._good(rows, fits)
        wanted = dict.fromkeys(row[0] for row in rows if not good.isdisjoint(row[1:]))
        moments = self.events.moments(self._task(graph_task))
        started = sorted((each.started, each.node) for each in moments if each.started is not None)
        found: dict[int, int | None] = {node: seq for seq, node in started if node in wanted}
        for node in wanted:
            found.setdefault(node, None)
        return list(found.items())

    def _task(self, graph_task: int) -> GraphTaskRow:
        found = self._contents.graph_task(graph_task)
        if found is None:
            raise self._database.damaged("a graph task is missing")
        return found

    def _good(self, rows: list[tuple[int, ...]], fits: Callable[[str], bool]) -> set[int]:
        """The ids of texts that fit."""
        ids = {number for row in rows for number in row[1:]} - {0}
        return {number for number in ids if fits(self._contents.name(number))}

    def turns_beside(self, graph_task: int, after: int, until: int, limit: int) -> list[Turn]:
        """What threads took up in other graph tasks between two events, in order.

        Args:
            database: the file.
            contents: what is known of it.
            graph_task: the one that is left out.
            after: ``seq`` of the first of the events, which is left out itself.
            until: of the last, which is.
            limit: at most so many.
        """
        rows = self._database.integers(
            f"SELECT {AT}, t, thread, event.graph_task, event.node, name, kind"  # noqa: S608 - our words
            " FROM event JOIN node ON node.graph_task = event.graph_task AND node.idx = event.node"
            f" WHERE {EXECUTION} AND event.graph_task <> ? AND seq >= ? AND seq <= ?"
            f" AND {AT} > ? AND {AT} <= ? ORDER BY seq LIMIT ?",
            *(graph_task, after, until, after, until, limit),
        )
        start_ns = self._contents.meta.start_ns
        return [
            Turn(
                *(seq, t + start_ns, thread, other, node),
                short_name(self._contents.name(called)),
                kind == STARTED,
            )
            for seq, t, thread, other, node, called, kind in rows
        ]

    def sequence_nrs(self, graph_task: int) -> frozenset[int]:
        """The sequence numbers of the nodes of a graph task; leaves have none."""
        rows = self._database.integers(
            "SELECT sequence_nr FROM node WHERE graph_task = ? AND sequence_nr IS NOT NULL",
            graph_task,
        )
        return frozenset(number for (number,) in rows)

    def same(self, row: NodeRow) -> list[tuple[int, int]]:
        """Other graph tasks that went through what seems the very node, and its index in them."""
        if row.sequence_nr is None:
            return []
        found = self._database.integers(
            "SELECT graph_task, idx, name FROM node WHERE sequence_nr = ? AND topological_nr = ?"
            " AND graph_task <> ? ORDER BY graph_task, idx",
            *(row.sequence_nr, row.topological_nr, row.graph_task),
        )
        tasks, text = self._contents.graph_tasks, self._contents.name
        return [
            (other, index)
            for other, index, name in found
            if tasks.has(other) and text(name) == row.name
        ]

    def firsts(self) -> list[tuple[int, int]]:
        """Graph task and index of the first node of each name in the whole recording, in order."""
        found = self._database.integers(
            "SELECT MIN(graph_task << 32 | idx) FROM node GROUP BY name"
        )
        places = sorted((each >> 32, each & 0xFFFFFFFF) for (each,) in found)
        return [each for each in places if self._contents.graph_tasks.has(each[0])]

    def accumulators(self, graph_task: int) -> dict[str, int]:
        """The first node of a graph task that accumulates into each parameter, by its name."""
        rows = self._database.integers(
            "SELECT idx, parameter FROM node WHERE graph_task = ? AND parameter ORDER BY idx DESC",
            graph_task,
        )
        return {self._contents.name(name): node for node, name in rows}

    @property
    def path(self) -> str:
        """The file, as it was opened."""
        return self._database.name

    def damaged(self, what: str) -> TraceError:
        """The error for a file whose contents make no sense."""
        return self._database.damaged(what)

    def count(self, graph_task: int) -> int:
        """Number of nodes; 0 before the dependencies are computed."""
        return self._database.value("SELECT count(*) FROM node WHERE graph_task = ?", graph_task)

    def consumers(self, graph_task: int, nodes: Sequence[int]) -> dict[int, list[int]]:
        """Whom some nodes give gradients to, by output."""
        found: dict[int, list[int]] = {}
        for producer, consumer in self._database.integers(
            "SELECT producer, consumer FROM edge WHERE graph_task = ?"  # noqa: S608
            f" AND producer IN ({_marks(nodes)}) ORDER BY producer, output",
            *(graph_task, *nodes),
        ):
            found.setdefault(producer, []).append(consumer)
        return found

    def described(self, graph_task: int, nodes: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Index, ids of name, parameter, module and shapes, queue and dependencies, by node."""
        rows = self._database.integers(
            "SELECT idx, name, parameter, module, shapes, queue, dependencies FROM node"  # noqa: S608
            f" WHERE graph_task = ? AND idx IN ({_marks(nodes)})",
            *(graph_task, *nodes),
        )
        return {row[0]: row for row in rows}

    def origins_of(self, graph_task: int, nodes: Sequence[int]) -> dict[int, tuple[Frame, ...]]:
        """The stacks of some nodes, as far as they are known."""
        rows = self._database.integers(
            "SELECT node, stack FROM origin WHERE graph_task = ?"  # noqa: S608
            f" AND node IN ({_marks(nodes)})",
            *(graph_task, *nodes),
        )
        stacks = self._contents.stacks
        if not all(stack in stacks for _, stack in rows):
            raise self._database.damaged("a stack is missing")
        return {node: stacks[stack] for node, stack in rows}

    def output_norms(self, graph_task: int, after: int, until: int) -> list[tuple[int, float]]:
        """Nodes and the norms of the finite gradients that they put out between two events."""
        rows = self._database.reals(
            f"SELECT event.node, norm FROM {FROM_MEASURED}"  # noqa: S608 - our words
            f" WHERE health.seq > ? AND health.seq <= ? AND {CHECK} AND +event.graph_task = ?"
            " AND norm IS NOT NULL AND nan + posinf + neginf = 0",
            *(after, until, graph_task),
        )
        return cast("list[tuple[int, float]]", rows)

    def edges_between(
        self, graph_task: int, producers: Sequence[int], consumer: int
    ) -> list[EdgeRow]:
        """The edges from some nodes into one."""
        rows = self._database.integers(
            "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ?"  # noqa: S608
            f" AND producer IN ({_marks(producers)}) AND consumer = ?",
            *(graph_task, *producers, consumer),
        )
        return list(map(EdgeRow._make, rows))

    def has_one_slot(self, graph_task: int, node: int) -> bool:
        """Whether a node's InputBuffer has a single slot."""
        rows = self._database.integers(
            "SELECT num_inputs FROM node WHERE graph_task = ? AND idx = ?", graph_task, node
        )
        return rows == [(1,)]


def _marks(numbers: Sequence[int]) -> str:
    return ",".join("?" * len(numbers))


def _begin(moments: Moments) -> int:
    """``seq`` of NodeStarted, of NodeSkipped where there is none."""
    begin = moments.ended if moments.started is None else moments.started
    return -1 if begin is None else begin
