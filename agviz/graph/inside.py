"""Backward passes inside of a backward pass, as those of reentrant checkpoints: read as one graph.

The nodes of each pass follow those of the passes before it, so that their indices count on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from agviz.analysis.default_pass import inside_of
from agviz.graph.marks import Marks, read_marks
from agviz.traces.rows import EdgeRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow, NodeRow, NonFiniteRow


@dataclass(frozen=True, slots=True)
class Inside:
    """A backward pass that a node of another one called."""

    task: GraphTaskRow
    maker: int
    """Index of that node in the graph."""
    first: int
    """Index in the graph of the pass's node 0; the others follow it."""
    turns: str
    """What the turn in execution of its nodes begins with: ``5.`` where the maker's is 5."""
    before: int
    """How many nodes of earlier passes ran that the same node had called."""


class NestedPasses:
    """A graph task and those inside of it, as rows of one graph.

    Args:
        trace: where they are recorded.
        saved: read which tensors nodes had saved.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace, *, saved: bool) -> None:
        self._trace = trace
        self._saved = saved
        self._places: dict[int, int] = {}
        """Of each graph task, by id: the index of its node 0."""
        self._ran: Counter[int] = Counter()
        """By maker: how many nodes its passes ran so far."""
        self._first: tuple[int, int] | None = None
        self.rows: list[NodeRow] = []
        self.edges: list[EdgeRow] = []
        self.calls: list[EdgeRow] = []
        """From nodes to where the passes begin that they called; outputs and slots are negative."""
        self.marks = Marks()
        self.inside: dict[int, Inside] = {}

    @property
    def first_nonfinite(self) -> int | None:
        """Index of the node at which gradients became non-finite first."""
        return None if self._first is None else self._first[1]

    def add(self, task: GraphTaskRow) -> None:
        """Add a graph task."""
        place = self._places[task.id] = len(self.rows)
        edges = self._trace.edges(task.id)
        rows = self._trace.nodes(task.id)
        marks = read_marks(self._trace, task.id, edges, saved=self._saved)
        found = self._trace.first_nonfinite(task.id)
        if place:
            rows = [replace(row, index=row.index + place) for row in rows]
            edges = [
                edge._replace(producer=edge.producer + place, consumer=edge.consumer + place)
                for edge in edges
            ]
            marks = _moved(marks, place)
        self.rows += rows
        self.edges += edges
        self.marks = _both(self.marks, marks) if place else marks
        self._look_at(found, marks, place)

    def add_inside(self, tasks: Sequence[GraphTaskRow]) -> None:
        """Add those of ``tasks`` that are inside of what was added, and what is inside of them."""
        (outermost,) = self._places
        sizes = {outermost: len(self.rows)}
        for task in inside_of(tasks, outermost):
            # Others are only in a damaged file.
            if 0 <= task.parent_node < sizes.get(task.parent, 0):
                self._call(task, self._places[task.parent] + task.parent_node)
                sizes[task.id] = len(self.rows) - self._places[task.id]

    def _call(self, task: GraphTaskRow, maker: int) -> None:
        outer = self.inside.get(task.parent)
        turns = "" if outer is None else outer.turns
        before = 0 if outer is None else outer.before
        order = self.rows[maker].order
        turn = "" if order is None else f"{turns}{order + before}."
        place = len(self.rows)
        self.inside[task.id] = Inside(task, maker, place, turn, self._ran[maker])
        edges = len(self.edges)
        self.add(task)
        self._ran[maker] += sum(row.order is not None for row in self.rows[place:])
        fed = {edge.consumer for edge in self.edges[edges:]}
        self.calls += [
            EdgeRow(maker, -1 - index, index, -1)
            for index in range(place, len(self.rows))
            if index not in fed
        ]

    def _look_at(self, found: NonFiniteRow | None, marks: Marks, place: int) -> None:
        if found is not None and (self._first is None or found.seq < self._first[0]):
            self._first = found.seq, next(iter(marks.origins), found.node + place)


def _moved(marks: Marks, by: int) -> Marks:
    """The same marks at nodes whose indices are so much higher."""

    def edge(at: tuple[int, int]) -> tuple[int, int]:
        return at[0] + by, at[1]

    def keys(found: Mapping[int, Any]) -> dict[int, Any]:
        return {index + by: what for index, what in found.items()}

    return replace(
        marks,
        dtypes={edge(at): dtype for at, dtype in marks.dtypes.items()},
        received=keys(marks.received),
        zero=frozenset(index + by for index in marks.zero),
        zeros=frozenset(map(edge, marks.zeros)),
        got_zeros=frozenset(index + by for index in marks.got_zeros),
        growth=keys(marks.growth),
        nonfinite=frozenset(map(edge, marks.nonfinite)),
        origins=keys(marks.origins),
        hooks=keys(marks.hooks),
        saved=keys(marks.saved),
    )


def _both(marks: Marks, more: Marks) -> Marks:
    """The marks of two parts of a graph; those of the first come first."""
    joined: defaultdict[str, Any] = defaultdict()
    for each in fields(Marks):
        if each.name not in {"critical", "attributes"}:
            joined[each.name] = getattr(marks, each.name) | getattr(more, each.name)
    return replace(marks, **joined)
