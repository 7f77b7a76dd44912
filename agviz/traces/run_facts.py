"""When the forward of each backward pass of a run began, and what its loss was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


class ForwardBegun(NamedTuple):
    """When the forward began whose gradients a backward pass computes, on its way to the file."""

    graph_task: int
    since_ns: int
    """Time since the start of the recording."""

    def rows(self, _text: object, _stack: object) -> Iterator[tuple[str, tuple[int, int]]]:
        """The table, and the row for it."""
        yield "forward_begun", self


def forwards(database: Database, contents: Contents) -> dict[int, int]:
    """By graph task: when its forward began, ``time.monotonic_ns()``.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    start_ns = contents.meta.start_ns
    rows = database.integers("SELECT graph_task, t FROM forward_begun")
    return {graph_task: t + start_ns for graph_task, t in rows}


def losses(database: Database) -> dict[int, float]:
    """The value of the one number that backward was called on, by graph task.

    A call on several tensors, or on one of several elements, has none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.reals(
        "SELECT graph_task, mean, nan, posinf, neginf FROM root"
        " JOIN measured ON measured.id = root.health"
        " JOIN tensor_type ON tensor_type.id = measured.tensor_type"
        " WHERE tensor_type.numbers = 1 GROUP BY graph_task HAVING count(*) = 1"
    )
    return {
        int(graph_task or 0): _value(mean, nan, posinf, neginf)
        for graph_task, mean, nan, posinf, neginf in rows
    }


def _value(
    mean: float | None, nan: float | None, posinf: float | None, neginf: float | None
) -> float:
    if nan or (mean is None and not (posinf or neginf)):
        return math.nan
    if posinf or neginf:
        return math.inf if posinf else -math.inf
    return float(mean or 0.0)
