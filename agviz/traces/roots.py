"""The tensors that backward or grad is called on: whether the loss itself is finite.

A loss can be NaN while every gradient is finite, as that of no targets is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.traces import health
from agviz.traces.rows import RootRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.measure.values import Health
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


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
    return [number for (number,) in rows if contents.graph_tasks.has(number)]
