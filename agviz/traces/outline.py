"""The outline of a graph task, read piece by piece: who ran when, and what follows from whom.

For who shows a graph task of many nodes: nothing is read for all of them at once, and what is given
is integers, to be kept in columns. A file that grows is read on from where the last piece ended.
"""

from __future__ import annotations

from array import array
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.errors import TraceError
from agviz.traces import around, codec
from agviz.traces.executions import END, STARTED
from agviz.traces.pages import Pages
from agviz.traces.rows import EdgeRow, GraphTaskStatus
from agviz.traces.schema import CHECK, EXECUTION
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import GraphTaskRow, NodeStatus
    from agviz_engine.events import Event

_ACCUMULATED: Final = codec.KIND[events.GradientAccumulated]
_DECREMENTED: Final = codec.KIND[events.DependencyDecremented]
_OWN: Final = sorted({*codec.KIND.values()} - {_DECREMENTED, _ACCUMULATED})
"""Kinds of events of which a node has few; so asked for, those it has many of are not looked at."""
_MOST_EVENTS: Final = 1_000
_PER_CONSUMER: Final = 64
_MARGIN: Final = 256
_PER_QUERY: Final = 400
"""Nodes that one query asks for."""


class Started(NamedTuple):
    """A node taken up by a thread."""

    seq: int
    start_ns: int
    thread: int
    node: int


class Ended(NamedTuple):
    """The end of one that was taken up."""

    seq: int
    node: int
    end_ns: int
    status: NodeStatus


class Described(NamedTuple):
    """A node; texts are ids of strings."""

    node: int
    name: int
    parameter: int
    module: int
    shapes: int
    """Of its inputs: ``[2, 3];[4]``; told where there is a parameter only."""
    queue: int
    dependencies: int
    consumers: tuple[int, ...]
    """Nodes it gives gradients to, by output; one of them may be there several times."""


class Piece(NamedTuple):
    """What was read on."""

    started: Sequence[Started]
    """In order."""
    ended: Sequence[Ended]
    """Of these and of earlier ones."""
    described: Sequence[Described]
    """Those that started; behind the last of them, those that have not."""
    texts: dict[int, str]
    """What ids that appear for the first time stand for."""
    nonfinite: Sequence[tuple[int, int]]
    """``seq`` and node of the findings of NaN or infinities."""
    until: int
    """Findings and failures up to this ``seq`` are known now."""
    is_last: bool
    """Whether there is no more; of a file that grows, for now."""


class Arrived(NamedTuple):
    """The gradients that arrived in one slot of a node's InputBuffer."""

    slot: int
    number: int
    nbytes: int
    """Of the sum, after the last of them."""
    last_seq: int
    """Of the last of them."""


class Story(NamedTuple):
    """What happened to a node."""

    events: list[Event]
    """Those of the node itself but for arrivals, the first thousand; then the gradients it gave."""
    arrived: list[Arrived]
    """By slot."""


class Outline:
    """Reads on; see :meth:`more`. Raises TraceError where there is no such graph task."""

    def __init__(self, database: Database, contents: Contents, graph_task: int) -> None:
        self._database = database
        self._contents = contents
        self._graph_task = graph_task
        self._start_ns = contents.meta.start_ns
        self.nodes = database.value("SELECT count(*) FROM node WHERE graph_task = ?", graph_task)
        """Number of nodes; 0 before the dependencies are computed."""
        task = contents.graph_task(graph_task)
        if task is None:
            raise TraceError(f"{database.name} holds no graph task {graph_task} any more")
        begin = task.begin_seq - 1
        self._started_until = self._until = begin
        self._described_until = -1
        self._known = bytearray(self.nodes)
        self._told: set[int] = {0}
        self._last_into = array("i", [-1]) * self.nodes
        """By node: the last known edge into it."""
        self._before = array("i")
        """By edge: the one before that leads into the same node."""
        self._producers = array("i")
        """By edge."""
        self._is_told = bytearray(self.nodes)
        """Whether a node's edges are among these."""
        self._told_nodes = 0

    def more(self, limit: int) -> Piece:
        """The next ``limit`` executions; where there are no more, nodes that never ran."""
        until = self._last_seq()
        started, is_more = self._read_started(limit, until)
        rest: list[int] = []
        is_last = False
        if is_more:
            until = self._started_until
        else:
            rest, is_last = self._unstarted(limit)
        ended, nonfinite = self._read_ended(until), self._read_nonfinite(until)
        self._until = max(self._until, until)
        wanted = [each.node for each in started]
        described = [*self._describe(wanted), *self._describe(rest)]
        texts = {number: self._contents.name(number) for number in self._new(described)}
        return Piece(started, ended, described, texts, nonfinite, self._until, is_last)

    def _last_seq(self) -> int:
        """Before anything else is read: what is written meanwhile comes with the next piece."""
        rows = self._database.integers("SELECT seq FROM event ORDER BY seq DESC LIMIT 1")
        return rows[0][0] if rows else self._until

    def _read_started(self, limit: int, until: int) -> tuple[list[Started], bool]:
        """The next executions, and whether there may be more."""
        rows = self._database.integers(
            f"SELECT seq, t, thread, node FROM event WHERE {EXECUTION} AND kind = ?"  # noqa: S608
            " AND graph_task = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            STARTED,
            self._graph_task,
            self._started_until,
            until,
            limit,
        )
        found = []
        for seq, t, thread, node in rows:
            if not 0 <= node < self.nodes:
                raise self._database.damaged("an event concerns a node that is not there")
            if not self._known[node]:
                self._known[node] = 1
                found.append(Started(seq, t + self._start_ns, thread, node))
        if rows:
            self._started_until = rows[-1][0]
        return found, len(rows) == limit

    def _read_ended(self, until: int) -> list[Ended]:
        """Ends of what has started."""
        found = [
            Ended(seq, node, t + self._start_ns, status)
            for kind, status in END.items()
            for seq, node, t in self._database.integers(
                f"SELECT seq, node, t FROM event WHERE {EXECUTION} AND kind = ?"  # noqa: S608
                " AND graph_task = ? AND seq > ? AND seq <= ?",
                kind,
                self._graph_task,
                self._until,
                until,
            )
        ]
        found.sort()
        if not all(0 <= end.node < self.nodes for end in found):
            raise self._database.damaged("an event concerns a node that is not there")
        return [end for end in found if self._known[end.node]]

    def _read_nonfinite(self, until: int) -> list[tuple[int, int]]:
        rows = self._database.integers(
            f"SELECT seq, node FROM event WHERE {CHECK} AND b + c + d > 0 AND graph_task = ?"  # noqa: S608
            " AND seq > ? AND seq <= ? ORDER BY seq",
            self._graph_task,
            self._until,
            until,
        )
        if not all(0 <= node < self.nodes for _, node in rows):
            raise self._database.damaged("an event concerns a node that is not there")
        return [(seq, node) for seq, node in rows]

    def _unstarted(self, limit: int) -> tuple[list[int], bool]:
        """The next nodes that have not started, and whether these are the last."""
        found: list[int] = []
        node = self._described_until
        while len(found) < limit:
            node = self._known.find(0, node + 1)
            if node < 0:
                node = self.nodes - 1
                break
            found.append(node)
        self._described_until = node
        return found, self._known.find(0, node + 1) < 0

    def _describe(self, wanted: Sequence[int]) -> Iterable[Described]:
        for begin in range(0, len(wanted), _PER_QUERY):
            nodes = wanted[begin : begin + _PER_QUERY]
            marks = ",".join("?" * len(nodes))
            consumers: dict[int, list[int]] = {}
            for producer, consumer in self._database.integers(
                "SELECT producer, consumer FROM edge WHERE graph_task = ?"  # noqa: S608
                f" AND producer IN ({marks}) ORDER BY producer, output",
                self._graph_task,
                *nodes,
            ):
                if not 0 <= consumer < self.nodes:
                    raise self._database.damaged("an edge leads to a node that is not there")
                consumers.setdefault(producer, []).append(consumer)
            rows = self._database.integers(
                "SELECT idx, name, parameter, module, shapes, queue, dependencies FROM node"  # noqa: S608
                f" WHERE graph_task = ? AND idx IN ({marks})",
                self._graph_task,
                *nodes,
            )
            found = {row[0]: row for row in rows}
            if len(found) != len(nodes):
                raise self._database.damaged("a node is missing")
            for node in nodes:
                its = tuple(consumers.get(node, ()))
                self._note(node, its)
                yield Described._make((*found[node], its))

    def _note(self, producer: int, consumers: Sequence[int]) -> None:
        if self._is_told[producer]:
            return
        self._is_told[producer] = 1
        self._told_nodes += 1
        for consumer in consumers:
            self._before.append(self._last_into[consumer])
            self._producers.append(producer)
            self._last_into[consumer] = len(self._producers) - 1

    def edges_into(self, node: int, limit: int) -> tuple[list[EdgeRow], int]:
        """The first edges that lead into a node, by slot, and how many there are.

        Once all nodes were read, they are found without a search.
        """
        if self._told_nodes < self.nodes:
            everything = around.edges_into(self._database, self._graph_task, node)
            return everything[:limit], len(everything)
        producers = []
        edge = self._last_into[node]
        while edge >= 0:
            producers.append(self._producers[edge])
            edge = self._before[edge]
        found: list[EdgeRow] = []
        wanted = sorted(set(producers))
        if self._has_one_slot(node):
            del wanted[limit:]
        for begin in range(0, len(wanted), _PER_QUERY):
            some = wanted[begin : begin + _PER_QUERY]
            rows = self._database.integers(
                "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ?"  # noqa: S608
                f" AND producer IN ({','.join('?' * len(some))}) AND consumer = ?",
                self._graph_task,
                *some,
                node,
            )
            found += map(EdgeRow._make, rows)
        return sorted(found, key=itemgetter(3, 0, 1))[:limit], len(producers)

    def _has_one_slot(self, node: int) -> bool:
        rows = self._database.integers(
            "SELECT num_inputs FROM node WHERE graph_task = ? AND idx = ?", self._graph_task, node
        )
        return rows == [(1,)]

    def story(self, node: int) -> Story:
        """What happened to a node, in time that depends little on how many nodes feed it."""
        pages = Pages(self._database, self._contents)
        own = pages.where(
            f"{self._contents.blocks.of(self._graph_task, node, _OWN)} ORDER BY seq LIMIT ?",
            _MOST_EVENTS,
        )
        rows = self._arrived(node)
        finished = [event.seq for event in own if isinstance(event, events.NodeFinished)]
        given: list[Event] = []
        if finished:
            consumers, _ = around.fan_out(self._database, self._graph_task, node)
            # A thread gives a node's gradients before it does anything else; others are at work,
            # too.
            until = finished[-1] + _PER_CONSUMER * consumers + _MARGIN
            given = pages.where(
                "seq > ? AND seq <= ? AND kind = ? AND +graph_task = ? AND a = ?"
                " ORDER BY seq LIMIT ?",
                *(finished[-1], until, _ACCUMULATED, self._graph_task, node, _MOST_EVENTS),
            )
        return Story([*own, *given], [Arrived(*row) for row in rows])

    def _arrived(self, node: int) -> list[tuple[int, ...]]:
        """By slot; where a node has one slot only, its events are counted, but not read."""
        if self._has_one_slot(node):
            return self._contents.blocks.arrived(self._graph_task, node)
        mine = self._contents.blocks.of(self._graph_task, node, [_ACCUMULATED])
        return self._database.integers(
            f"SELECT b, count(*), d, max(seq) FROM event WHERE {mine} GROUP BY b ORDER BY b"  # noqa: S608
        )

    def _new(self, described: Sequence[Described]) -> set[int]:
        """Ids of texts that were not told yet."""
        used = {each.shapes for each in described if each.parameter}
        used.update(*((each.name, each.parameter, each.module) for each in described))
        new = used - self._told
        self._told |= new
        return new


def start_near(
    database: Database, graph_task: int, seq: int, count: int, thread: int | None
) -> int | None:
    """See :meth:`agviz.traces.reader.Trace.start_near`."""
    mine = "" if thread is None else " AND thread = ?"
    after, order = ("> ?", "ASC") if count > 0 else ("< ?", "DESC")
    rows = database.integers(
        f"SELECT seq FROM event WHERE {EXECUTION} AND kind = ? AND graph_task = ?"  # noqa: S608
        f" AND seq {after}{mine} ORDER BY seq {order} LIMIT 1 OFFSET ?",
        STARTED,
        graph_task,
        seq,
        *(() if thread is None else (thread,)),
        max(abs(count) - 1, 0),
    )
    return rows[0][0] if rows else None


def first_failure(database: Database, task: GraphTaskRow) -> int | None:
    """See :meth:`agviz.traces.reader.Trace.first_failure`."""
    rows = database.integers(
        f"SELECT seq FROM event WHERE {EXECUTION} AND kind = ? AND graph_task = ?"  # noqa: S608
        " ORDER BY seq LIMIT 1",
        codec.KIND[events.NodeFailed],
        task.id,
    )
    if rows:
        return rows[0][0]
    return task.end_seq if task.status is GraphTaskStatus.FAILED else None
