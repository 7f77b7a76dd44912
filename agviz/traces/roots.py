"""The tensors that backward or grad is called on: whether the loss itself is finite.

A loss can be NaN while every gradient is finite, as that of no targets is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces import health
from agviz.traces.rows import RootRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.measure.values import Health, SavedValue
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

_MOST_ROOTS: Final = 16
_MOST_NUMBERS: Final = 4_096
"""A larger tensor is no loss; to read it would cost what reading a gradient does."""
_MOST_NODES: Final = 32
"""Nodes nearest to a loss of which is looked what they had saved."""


class Roots(NamedTuple):
    """What was measured of the roots of a graph task, on its way to the file."""

    graph_task: int
    measured: list[tuple[int, Health]]
    """By number among the tensors of the call."""

    def rows(self, keep: Callable[[Health], int]) -> list[int]:
        """The values of the rows for them, one behind the other; ``keep`` gives ids."""
        return [
            value
            for number, found in self.measured
            for value in (self.graph_task, number, keep(found))
        ]


def measured(task: GraphTask) -> list[tuple[int, Health]]:
    """Number and health of each small tensor that is differentiated."""
    from torch import Tensor

    from agviz.measure.health import measure, unseen

    found = []
    with unseen():
        for number, tensor in enumerate(task.root_tensors[:_MOST_ROOTS]):
            try:
                if isinstance(tensor, Tensor) and tensor.numel() <= _MOST_NUMBERS:
                    found.append((number, measure(tensor)))
            except RuntimeError:  # an exotic kind of tensor does not say how large it is
                continue
    return found


def saved_near(task: GraphTask) -> Iterator[tuple[NodeRef, tuple[SavedValue, ...]]]:
    """What the nodes nearest to the roots have saved, nearest first."""
    from agviz.measure.saved import measured as saved_of

    waiting = deque(ref for ref, _ in task.root_edges)
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_NODES:
        ref = waiting.popleft()
        if ref.index in seen:
            continue
        seen.add(ref.index)
        if not ref.is_accumulate_grad:
            yield ref, saved_of(ref)
        waiting.extend(edge[0] for edge in ref.next_edges if edge is not None)


def read(database: Database, contents: Contents, graph_task: int) -> list[RootRow]:
    """In order of their numbers.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    of_task = "SELECT health FROM root WHERE graph_task = ?"
    known = health.read_measured(database, contents, of_task, graph_task)
    rows = database.integers(
        "SELECT number, health FROM root WHERE graph_task = ? ORDER BY number", graph_task
    )
    if any(number not in known for _, number in rows):
        raise database.damaged("a root's health is missing")
    return [RootRow(graph_task, number, known[found]) for number, found in rows]


def nonfinite(database: Database, contents: Contents) -> list[int]:
    """The graph tasks of which a root is not finite, in order of their ids."""
    rows = database.integers(
        "SELECT DISTINCT graph_task FROM root JOIN measured ON measured.id = root.health"
        " WHERE nan + posinf + neginf > 0 ORDER BY graph_task"
    )
    return [number for (number,) in rows if number in contents.graph_tasks]
