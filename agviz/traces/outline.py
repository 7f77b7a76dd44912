"""The outline of a graph task, read piece by piece: who ran when, and what follows from whom.

For who shows a graph task of many nodes: nothing is read for all of them at once, and what is given
is integers, to be kept in columns. A file that grows is read on from where the last piece ended.
"""

from __future__ import annotations

from array import array
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.errors import TraceError
from agviz.traces import codec
from agviz.traces.nodes import END
from agviz.traces.schema import DELIVERED
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.nodes import NodeReader
    from agviz.traces.rows import EdgeRow, NodeStatus
    from agviz_engine.events import Event

_ARRIVALS: Final = {events.DependencyDecremented, events.GradientAccumulated}
_OWN: Final = sorted(codec.KIND[kind] for kind in codec.KIND.keys() - _ARRIVALS)
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
    """Shapes of its inputs: ``[2, 3];[4]``; known only where there is a parameter."""
    queue: int
    dependencies: int
    consumers: tuple[int, ...]
    """Nodes it gives gradients to, by output; one of them may be there several times."""


class Piece(NamedTuple):
    """What was read on."""

    started: Sequence[Started]
    """In order."""
    ended: Sequence[Ended]
    """Ends of these executions and of earlier ones."""
    described: Sequence[Described]
    """Those that started; behind the last of them, those that have not."""
    texts: dict[int, str]
    """The texts of ids that appear for the first time."""
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
    """Bytes of the sum, after the last of them."""
    last_seq: int
    """``seq`` of the last of them."""


class Story(NamedTuple):
    """What happened to a node."""

    events: list[Event]
    """Those of the node itself but for arrivals, the first thousand; then the gradients it gave."""
    arrived: list[Arrived]
    """By slot."""


class Outline:
    """Reads on; see :meth:`more`. Raises TraceError where there is no such graph task."""

    def __init__(self, contents: Contents, nodes: NodeReader, graph_task: int) -> None:
        self._contents = contents
        self._reader = nodes
        self._events = nodes.events
        self._graph_task = graph_task
        self._start_ns = contents.meta.start_ns
        self.nodes = nodes.count(graph_task)
        """Number of nodes; 0 before the dependencies are computed."""
        task = contents.graph_task(graph_task)
        if task is None:
            raise TraceError(f"{nodes.path} holds no graph task {graph_task} any more")
        begin, self._last_seq = task.begin_seq - 1, task.last_seq
        self._started_until = self._until = begin
        self._described_until = -1
        self._known = bytearray(self.nodes)
        self._reported: set[int] = {0}
        self._last_into = array("i", [-1]) * self.nodes
        """By node: the last known edge into it."""
        self._before = array("i")
        """By edge: the one before that leads into the same node."""
        self._producers = array("i")
        """By edge."""
        self._has_edges = bytearray(self.nodes)
        """Whether a node's edges are among these."""
        self._nodes_with_edges = 0

    def more(self, limit: int) -> Piece:
        """The next ``limit`` executions; where there are no more, nodes that never ran."""
        # Before anything else is read: what is written meanwhile comes with the next piece.
        until = min(self._events.last(), self._last_seq)
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

    def _read_started(self, limit: int, until: int) -> tuple[list[Started], bool]:
        """The next executions, and whether there may be more."""
        rows = self._events.started(self._graph_task, self._started_until, until, limit)
        found = []
        for seq, t, thread, node in rows:
            if not 0 <= node < self.nodes:
                raise self._reader.damaged("an event concerns a node that is not there")
            if not self._known[node]:
                self._known[node] = 1
                found.append(Started(seq, t + self._start_ns, thread, node))
        if rows:
            self._started_until = rows[-1][0]
        return found, len(rows) == limit

    def _read_ended(self, until: int) -> list[Ended]:
        """Ends of what has started."""
        found = [
            Ended(seq, node, t + self._start_ns, END[kind])
            for seq, node, t, kind in self._events.ended(self._graph_task, self._until, until)
        ]
        if not all(0 <= end.node < self.nodes for end in found):
            raise self._reader.damaged("an event concerns a node that is not there")
        return [end for end in found if self._known[end.node]]

    def _read_nonfinite(self, until: int) -> list[tuple[int, int]]:
        rows = self._events.found(self._graph_task, self._until, until)
        if not all(0 <= node < self.nodes for _, node in rows):
            raise self._reader.damaged("an event concerns a node that is not there")
        return rows

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
            consumers = self._reader.consumers(self._graph_task, nodes)
            if not all(
                0 <= consumer < self.nodes for each in consumers.values() for consumer in each
            ):
                raise self._reader.damaged("an edge leads to a node that is not there")
            found = self._reader.described(self._graph_task, nodes)
            if len(found) != len(nodes):
                raise self._reader.damaged("a node is missing")
            for node in nodes:
                its = tuple(consumers.get(node, ()))
                self._note(node, its)
                yield Described._make((*found[node], its))

    def _note(self, producer: int, consumers: Sequence[int]) -> None:
        if self._has_edges[producer]:
            return
        self._has_edges[producer] = 1
        self._nodes_with_edges += 1
        for consumer in consumers:
            self._before.append(self._last_into[consumer])
            self._producers.append(producer)
            self._last_into[consumer] = len(self._producers) - 1

    def edges_into(self, node: int, limit: int) -> tuple[list[EdgeRow], int]:
        """The first edges that lead into a node, by slot, and how many there are.

        Once all nodes were read, they are found without a search.
        """
        if self._nodes_with_edges < self.nodes:
            everything = self._reader.edges_into(self._graph_task, node)
            return everything[:limit], len(everything)
        producers = []
        edge = self._last_into[node]
        while edge >= 0:
            producers.append(self._producers[edge])
            edge = self._before[edge]
        found: list[EdgeRow] = []
        wanted = sorted(set(producers))
        if self._reader.has_one_slot(self._graph_task, node):
            del wanted[limit:]
        for begin in range(0, len(wanted), _PER_QUERY):
            some = wanted[begin : begin + _PER_QUERY]
            found += self._reader.edges_between(self._graph_task, some, node)
        return sorted(found, key=itemgetter(3, 0, 1))[:limit], len(producers)

    def story(self, node: int) -> Story:
        """What happened to a node, in time that depends little on how many nodes feed it."""
        own = self._events.of(self._graph_task, node, _OWN, _MOST_EVENTS)
        rows = self._arrived(node)
        finished = [event.seq for event in own if isinstance(event, events.NodeFinished)]
        given: list[Event] = []
        if finished:
            consumers, _ = self._reader.fan_out(self._graph_task, node)
            # A thread gives a node's gradients before it does anything else; others are at work,
            # too.
            until = finished[-1] + _PER_CONSUMER * consumers + _MARGIN
            found = self._events.where(
                "seq > ? AND seq <= ? AND kind = ? AND +graph_task = ? AND a = ?"
                " ORDER BY seq LIMIT ?",
                *(finished[-1], until, DELIVERED, self._graph_task, node, _MOST_EVENTS),
            )
            given = [event for event in found if isinstance(event, events.GradientAccumulated)]
        return Story([*own, *given], [Arrived(*row) for row in rows])

    def _arrived(self, node: int) -> list[tuple[int, ...]]:
        """By slot; where a node has one slot only, its events are counted, but not read."""
        if self._reader.has_one_slot(self._graph_task, node):
            return self._events.arrived(self._graph_task, node)
        return self._events.arrived_by_slot(self._graph_task, node)

    def _new(self, described: Sequence[Described]) -> set[int]:
        """Ids of texts that were not reported yet."""
        used = {each.shapes for each in described if each.parameter}
        used.update(*((each.name, each.parameter, each.module) for each in described))
        new = used - self._reported
        self._reported |= new
        return new
