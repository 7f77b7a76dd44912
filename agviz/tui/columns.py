"""What is known of all nodes of a graph task: columns of integers that grow piece by piece.

A node takes some fifty bytes. Rows and facts are made when somebody looks at them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, overload

from rich.cells import cell_len

from agviz.traces.nodes import short_name
from agviz.traces.rows import NodeStatus
from agviz.tui.lanes import Fork, Lanes
from agviz.tui.timeline import Lane

if TYPE_CHECKING:
    from agviz.traces.outline import Piece

_STATUSES = tuple(NodeStatus)
_RUNNING = _STATUSES.index(NodeStatus.RUNNING)
_MOST_LANES_WITHOUT_ORDER = 5_000
"""Of more nodes than these that have not run, no lanes are drawn."""


class NodeFacts(NamedTuple):
    """What a list says about a node."""

    node: int
    short_name: str
    """torch's name without namespaces; empty where it was not read yet."""
    order: int | None
    """Number in the order of NodeStarted, from 1; None: it has not started."""
    parameter: str
    module: str
    shape: str
    """Of the parameter: ``[2, 3]``; empty where there is none."""
    queue: int
    dependencies: int
    thread: int | None
    start_ns: int | None
    end_ns: int | None

    @property
    def place(self) -> str:
        """The parameter or module it belongs to."""
        return self.parameter or self.module

    @property
    def duration_ns(self) -> int | None:
        """From its start to its end."""
        if self.start_ns is None or self.end_ns is None:
            return None
        return self.end_ns - self.start_ns


class _Called(NamedTuple):
    """What many nodes have in common: ids of texts."""

    name: int
    parameter: int
    module: int


class Execution(NamedTuple):
    """A node taken up by a thread."""

    order: int
    node: int
    thread: int
    start_ns: int
    end_ns: int | None
    status: NodeStatus
    seq: int
    """Of its NodeStarted."""


class Taken(Sequence[int]):
    """A column of executions, of one thread."""

    def __init__(self, column: Sequence[int], orders: Sequence[int]) -> None:
        self._column = column
        self._orders = orders

    def __len__(self) -> int:
        return len(self._orders)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return [self._column[order - 1] for order in self._orders[place]]
        return self._column[self._orders[place] - 1]


class OutlineColumns:
    """Rows: nodes in the order in which they started, then those that have not, by index.

    Args:
        nodes: how many there are.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.version = 0
        """Counts the pieces."""
        self.is_complete = False
        """Whether all was read; of what grows, for now."""
        self.until = -1
        """Failures and findings up to this ``seq`` are known."""
        self.stops: list[int] = []
        """``seq`` of failures and non-finite findings, ascending."""
        self.nonfinite: list[tuple[int, int]] = []
        """``seq`` and node of the findings."""
        self.notable: set[int] = set()
        """Nodes that failed or were found non-finite."""
        self.threads: set[int] = set()
        self.by_thread: dict[int, array[int]] = {}
        """Orders of the nodes that each thread took up."""
        self.longest_name = 8
        """Cells."""
        self.most_dependencies = 0
        self.has_places = False
        """Whether a module or parameter of any node is known."""
        self.last_ns = 0
        """The last start or end."""
        self._texts = {0: ""}
        self._short: dict[int, str] = {0: ""}
        self._paths: dict[tuple[int, int], tuple[str, ...]] = {}
        self._called = [_Called(0, 0, 0)]
        self._place_of = {self._called[0]: 0}
        self._order = array("i", bytes(4 * nodes))
        self._call = array("i", bytes(4 * nodes))
        """Places in ``_called``."""
        self._shape = array("i", bytes(4 * nodes))
        self._queue = array("h", bytes(2 * nodes))
        self._dependencies = array("i", bytes(4 * nodes))
        self._first = array("i", bytes(4 * nodes))
        self._many = array("i", bytes(4 * nodes))
        self._consumers = array("i")
        self.started = array("i")
        """Nodes that started, in order."""
        self.start_ns = array("q")
        self.end_ns = array("q")
        """-1: it has not ended."""
        self.seqs = array("q")
        self._thread = array("i")
        self._status = bytearray()
        self._joined = bytearray()
        """By row of those that started: 1 where it folds together with the row above."""
        self._rest = array("i")
        self._lanes = Lanes()
        self._rest_lanes: Lanes | None = None

    def __len__(self) -> int:
        return len(self.started) + len(self._rest)

    def add(self, piece: Piece) -> None:
        """Grow."""
        self.version += 1
        self.is_complete, self.until = piece.is_last, piece.until
        self._texts.update(piece.texts)
        self._describe(piece)
        for seq, start_ns, thread, node in piece.started:
            self.started.append(node)
            self.start_ns.append(start_ns)
            self.end_ns.append(-1)
            self.seqs.append(seq)
            self._thread.append(thread)
            self._status.append(_RUNNING)
            self._order[node] = len(self.started)
            self._joined.append(len(self.started) > 1 and self.belong(self.started[-2], node))
            self.by_thread.setdefault(thread, array("i")).append(len(self.started))
            self._lanes.add(node, self.consumers(node))
            self.last_ns = max(self.last_ns, start_ns)
        for seq, node, end_ns, status in piece.ended:
            place = self._order[node] - 1
            if place >= 0:
                self.end_ns[place] = end_ns
                self._status[place] = _STATUSES.index(status)
                self.last_ns = max(self.last_ns, end_ns)
                if status is NodeStatus.FAILED:
                    self.notable.add(node)
                    self.stops.append(seq)
        for seq, node in piece.nonfinite:
            self.nonfinite.append((seq, node))
            self.notable.add(node)
            self.stops.append(seq)
        self.stops.sort()
        self._regroup(piece)

    def _describe(self, piece: Piece) -> None:
        for (
            node,
            name,
            parameter,
            module,
            shapes,
            queue,
            dependencies,
            consumers,
        ) in piece.described:
            called = _Called(name, parameter, module)
            place = self._place_of.setdefault(called, len(self._called))
            if place == len(self._called):
                self._called.append(called)
                self.has_places |= bool(parameter or module)
            self._call[node] = place
            self._shape[node] = shapes
            self._queue[node] = max(min(queue, 32_767), -1)
            self._dependencies[node] = min(dependencies, 2**31 - 1)
            self.most_dependencies = max(self.most_dependencies, dependencies)
            self._first[node], self._many[node] = len(self._consumers), len(consumers)
            self._consumers.extend(consumers)
            if name not in self._short:
                self._short[name] = short_name(self._texts[name])
                self.longest_name = max(self.longest_name, cell_len(self._short[name]))

    def _regroup(self, piece: Piece) -> None:
        order = self._order
        if piece.started and self._rest:
            self._rest = array("i", [node for node in self._rest if not order[node]])
        known = self._rest[-1] if self._rest else -1
        self._rest.extend(
            [each.node for each in piece.described if each.node > known and not order[each.node]]
        )
        self._rest_lanes = None

    def row_of(self, node: int) -> int | None:
        """The row of a node; None where it is not known yet."""
        if self._order[node]:
            return self._order[node] - 1
        place = bisect_left(self._rest, node)
        if place < len(self._rest) and self._rest[place] == node:
            return len(self.started) + place
        return None

    def node_at(self, row: int) -> int:
        """The node of a row."""
        started = len(self.started)
        return self.started[row] if row < started else self._rest[row - started]

    def lane(self, thread: int, end_ns: int) -> Lane:
        """The executions of a thread.

        Args:
            thread: one of ``by_thread``.
            end_ns: end of an execution that has none.
        """
        orders = self.by_thread[thread]
        notable = sorted(
            bisect_left(orders, self._order[node])
            for node in self.notable
            if self._order[node] and self._thread[self._order[node] - 1] == thread
        )
        return Lane(Taken(self.start_ns, orders), Taken(self.end_ns, orders), notable, end_ns)

    def rows_of_thread(self, thread: int, queue: int | None) -> array[int]:
        """Rows of the nodes that a thread took up, or that wait for its queue."""
        started = len(self.started)
        rows = array("i", [order - 1 for order in self.by_thread.get(thread, ())])
        waiting = [
            started + place for place, node in enumerate(self._rest) if self._queue[node] == queue
        ]
        rows.extend(waiting)
        return rows

    def lanes_at(self, first: int, end: int) -> Fork | None:
        """The lanes of the rows from ``first`` to ``end - 1``; None where they are not drawn."""
        started = len(self.started)
        if end <= started:
            return self._lanes.at(first, end)
        if len(self._rest) > _MOST_LANES_WITHOUT_ORDER or first < started:
            return None
        return self._lanes_of_all().at(first - started, end - started)

    @property
    def widest(self) -> int:
        """Largest number of lanes beside a row."""
        return self._lanes_of_all().widest

    def _lanes_of_all(self) -> Lanes:
        """With those of nodes that have not started, unless they are too many."""
        if len(self._rest) > _MOST_LANES_WITHOUT_ORDER:
            return self._lanes
        if self._rest_lanes is None:
            self._rest_lanes = self._lanes.copy()
            for node in self._rest:
                self._rest_lanes.add(node, self.consumers(node))
        return self._rest_lanes

    def consumers(self, node: int) -> Sequence[int]:
        """Nodes that a node gives gradients to."""
        first = self._first[node]
        return self._consumers[first : first + self._many[node]]

    def facts(self, node: int) -> NodeFacts:
        """Of one node."""
        called = self._called[self._call[node]]
        parameter = self._texts[called.parameter]
        order = self._order[node]
        thread = start_ns = end_ns = None
        if order:
            thread, start_ns = self._thread[order - 1], self.start_ns[order - 1]
            end_ns = self.end_ns[order - 1]
        shape = self._texts.get(self._shape[node], "") if parameter else ""
        return NodeFacts(
            node=node,
            short_name=self._short[called.name],
            order=order or None,
            parameter=parameter,
            module=self._texts[called.module],
            shape=shape.partition(";")[0],
            queue=self._queue[node],
            dependencies=self._dependencies[node],
            thread=thread,
            start_ns=start_ns,
            end_ns=None if end_ns is not None and end_ns < 0 else end_ns,
        )

    def execution(self, order: int) -> Execution:
        """The execution with a number, from 1."""
        place = order - 1
        end_ns = self.end_ns[place]
        return Execution(
            order,
            self.started[place],
            self._thread[place],
            self.start_ns[place],
            None if end_ns < 0 else end_ns,
            _STATUSES[self._status[place]],
            self.seqs[place],
        )

    def execution_of(self, node: int) -> Execution | None:
        """The execution of a node; None: it has not started."""
        return self.execution(self._order[node]) if self._order[node] else None

    def path_of(self, node: int) -> tuple[str, ...]:
        """The names of the modules around a node, outermost first; of a parameter, too."""
        _, parameter, module = self._called[self._call[node]]
        path = self._paths.get((module, parameter))
        if path is None:
            found = self._texts[module] or self._texts[parameter].rpartition(".")[0]
            path = tuple(found.split(".")) if found else ()
            self._paths[module, parameter] = path
        return path

    def name_of(self, node: int) -> int:
        """The id of a node's name: equal for nodes of one type."""
        return self._called[self._call[node]].name

    def is_chained(self, producer: int, consumer: int) -> bool:
        """Whether one feeds only the other, which waits for nobody else."""
        return (
            self._many[producer] == 1
            and self._consumers[self._first[producer]] == consumer
            and self._dependencies[consumer] == 1
        )

    def places(self, begin: str) -> list[str]:
        """Modules and parameters whose names begin so."""
        known = {*self._paths}
        found = {self._texts[number] for pair in known for number in pair if number}
        return sorted(text for text in found if text.startswith(begin))

    def parameters(self, begin: str) -> list[str]:
        """Parameters whose names begin so."""
        found = {self._texts[number] for _, number in self._paths if number}
        found |= {self._texts[called.parameter] for called in self._called if called.parameter}
        return sorted(text for text in found if text.startswith(begin))

    def belong(self, one: int, other: int) -> bool:
        """Whether neighbours are of one module, or outside of modules links of one chain."""
        path = self.path_of(one)
        if path or self.path_of(other):
            return path == self.path_of(other)
        return self.is_chained(one, other)

    def groups(self) -> Iterator[tuple[int, int]]:
        """The stretches of rows that fold together; of those that started."""
        start, size = 0, len(self._joined)
        while start < size:
            end = self._joined.find(0, start + 1)
            end = size if end < 0 else end
            yield start, end
            joined = self._joined.find(1, end)
            start = size if joined < 0 else joined - 1

    def find(self, wanted: str) -> list[int]:
        """Nodes whose name, module or parameter holds ``wanted``, by row.

        Upper and lower case count only where ``wanted`` has an upper-case letter.
        """
        exact = any(character.isupper() for character in wanted)
        ids = {
            number
            for number, text in self._texts.items()
            if number and wanted in (text if exact else text.lower())
        }
        fits = [not ids.isdisjoint(called) for called in self._called]
        found: list[int] = []
        for nodes in (self.started, self._rest):
            places = map(self._call.__getitem__, nodes)
            found += compress(nodes, map(fits.__getitem__, places))
        return found
