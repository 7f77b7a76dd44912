"""PassColumns: a backward pass as columns of numbers, read piece by piece, to be compared.

A pass of a million events takes some 15 MB: of each gradient, hashes of 64 bits stand for what was
measured of it. Two that are the same have the same hashes; that two others have them, too, happens
once in 10^10 passes of that size.
"""

from __future__ import annotations

import math
import struct
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.alignment import Adjacency
from agviz.traces.health import ROLES
from agviz.traces.rows import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.pairs import Place
    from agviz.traces.health import HealthRow
    from agviz.traces.outline import Piece
    from agviz.traces.reader import Trace
    from agviz.traces.values import ValueRow

_NODES: Final = 2_000
_EVENTS: Final = 10_000
"""Read at once: some ms."""
_STATUSES: Final = tuple(NodeStatus)
_NUMBER: Final = {status: number for number, status in enumerate(_STATUSES)}
_ROLE: Final = {role: number for number, role in enumerate(ROLES)}
_OF_LEAF: Final = ("accumulated", "sum", "root")
"""Roles of what arrived in ``.grad``, the first that was measured."""
_UNMEASURED: Final = 0
_ALL: Final = 2**31 - 1


class Gradient(NamedTuple):
    """What is kept of a gradient that was measured."""

    kind: int
    """Hash of dtype and layout."""
    shape: int
    """Hash of it."""
    numbers: int
    """Hash of all that was counted and measured; 0: it was not."""
    norm: float
    """NaN: not measured."""
    is_bad: bool
    """Whether some of it is not finite."""


class PassColumns:
    """One graph task. Nodes are meant by their indexes.

    Args:
        trace: stays open as long as this is used.
        graph_task: the pass.

    Raises:
        agviz.errors.TraceError: there is no such pass.
    """

    def __init__(self, trace: Trace, graph_task: int) -> None:
        self.trace = trace
        self.task = trace.graph_task(graph_task)
        self._outline = trace.outline(graph_task)
        self._count = count = self._outline.nodes
        self.graph = Adjacency(count=count)
        self.orders = array("i", bytes(4 * count))
        """Place in the order of execution, from 1; 0: it never ran."""
        self.starts = array("q", [-1]) * count
        """``seq`` of NodeStarted; -1: it never ran."""
        self.times = array("q", [-1]) * count
        """How long it ran in ns; -1: not known."""
        self.norms = array("d", [math.nan]) * count
        """Euclidean norm of all that it put out, of a leaf that of what arrived; NaN: unknown."""
        self.bad = bytearray(count)
        """Whether some of that is not finite."""
        self._statuses = bytearray([_NUMBER[NodeStatus.WAITING]]) * count
        self._last = array("i", [-1]) * count
        """By node: the last gradient."""
        self._before = array("i")
        """By gradient: the one before of the same node."""
        self._places = bytearray(), array("q")
        """Role and slot by gradient."""
        self._hashes = array("q"), array("q"), array("q")
        self._measured = array("d"), bytearray()
        self.values: dict[int, dict[Place, ValueRow]] = {}
        """Gradients that were recorded themselves, by node."""
        self.is_read = False
        self._ran = 0

    def __len__(self) -> int:
        return self._count

    def read(self) -> Iterator[None]:
        """Read everything, a piece at each turn; nothing where that was done.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        if self.is_read:
            return
        yield from self._read_graph()
        yield from self._read_turns()
        yield from self._read_health()
        for first in range(0, self._count, _NODES):
            for node in range(first, min(first + _NODES, self._count)):
                self._sum_up(node)
            yield
        self.is_read = True

    def _read_graph(self) -> Iterator[None]:
        for first in range(0, self._count, _NODES):
            nodes, edges = self.trace.placed(self.task.id, first, first + _NODES)
            for facts in nodes:
                if not facts.is_recorded:
                    self._statuses[len(self.graph)] = _NUMBER[NodeStatus.UNKNOWN]
                self.graph.add_node(facts)
            if any(not 0 <= edge.consumer < self._count for edge in edges):
                raise self.trace.damaged("an edge leads to a node that is not there")
            for edge in edges:
                self.graph.add_edge(edge)
            yield
        if len(self.graph) != self._count:
            raise self.trace.damaged("a node is missing")

    def _read_health(self) -> Iterator[None]:
        number = self.task.id
        last = min(self.task.last_seq, self.trace.last_seq)
        for after in range(self.task.begin_seq - 1, last, _EVENTS):
            until = min(after + _EVENTS, last)
            for row in self.trace.health_between(number, after, until):
                self._add(row)
            yield
        if self.trace.meta.values == "full":
            for value in self.trace.values(number, limit=_ALL):
                if not value.unknown:
                    self.values.setdefault(value.node, {})[value.role, value.slot] = value
            yield

    def status(self, node: int) -> NodeStatus:
        """How far a node came."""
        return _STATUSES[self._statuses[node]]

    def gradients(self, node: int) -> dict[Place, Gradient]:
        """What was measured at a node."""
        found: dict[Place, Gradient] = {}
        at = self._last[node]
        while at >= 0:
            place = ROLES[self._places[0][at]], self._places[1][at]
            kind, shape, numbers = (column[at] for column in self._hashes)
            norm, is_bad = self._measured[0][at], bool(self._measured[1][at])
            found.setdefault(place, Gradient(kind, shape, numbers, norm, is_bad))
            at = self._before[at]
        return found

    def _read_turns(self) -> Iterator[None]:
        begun = array("q", bytes(8 * self._count))
        is_last = False
        while not is_last:
            piece: Piece = self._outline.more(_NODES)
            for seq, start_ns, _, node in piece.started:
                self._ran += 1
                self.orders[node], self.starts[node], begun[node] = self._ran, seq, start_ns
                self._end(node, NodeStatus.RUNNING)
            for _, node, end_ns, status in piece.ended:
                self.times[node] = end_ns - begun[node]
                self._end(node, status)
            is_last = piece.is_last
            yield

    def _end(self, node: int, status: NodeStatus) -> None:
        if self._statuses[node] != _NUMBER[NodeStatus.UNKNOWN]:
            self._statuses[node] = _NUMBER[status]

    def _add(self, row: HealthRow) -> None:
        if row.node >= self._count:
            raise self.trace.damaged("a gradient is of a node that is absent")
        self._before.append(self._last[row.node])
        self._last[row.node] = len(self._before) - 1
        self._places[0].append(_ROLE[row.role])
        self._places[1].append(row.slot)
        kind, shape, numbers = self._hashes
        kind.append(hash((row.dtype, row.layout)))
        shape.append(hash(row.shape))
        numbers.append(_UNMEASURED if row.unknown else _hash(row))
        norms, bad = self._measured
        norms.append(math.nan if row.norm is None else row.norm)
        bad.append(row.nan + row.posinf + row.neginf > 0)

    def _sum_up(self, node: int) -> None:
        found = self.gradients(node)
        if not self.graph[node].is_leaf:
            wanted = [each for (role, _), each in found.items() if role == "output"]
        elif any(role in _OF_LEAF for role, _ in found):
            role = next(role for role in _OF_LEAF if any(role == each for each, _ in found))
            wanted = [each for (its, _), each in found.items() if its == role]
        else:
            ways = self.graph.incoming(node)
            one = self.gradients(ways[0][1]).get(("output", ways[0][2])) if len(ways) == 1 else None
            wanted = [] if one is None else [one]
        if wanted:
            self.norms[node] = math.hypot(*(each.norm for each in wanted))
            self.bad[node] = any(each.is_bad for each in wanted)


def _hash(row: HealthRow) -> int:
    """As bytes, since -1.0 and -2.0 have one hash in Python; zeros have one sign."""
    counts = struct.pack("<4q", row.nan, row.posinf, row.neginf, row.zero)
    if row.min is None or row.max is None or row.mean is None or row.norm is None:
        return hash(counts) or 1
    reals = struct.pack("<4d", row.min + 0.0, row.max + 0.0, row.mean + 0.0, row.norm + 0.0)
    return hash(counts + reals) or 1
