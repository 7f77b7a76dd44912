"""Gradients on their way into InputBuffers, as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.traces import codec
from agviz.traces.database import DURING, place
from agviz_engine import events

if TYPE_CHECKING:
    from agviz.traces.database import Database
    from agviz.traces.rows import GraphTaskRow


class ArrivalRow(NamedTuple):
    """A gradient arrived in a slot of a node's InputBuffer."""

    producer: int
    """Node that put it out; -1: the caller of backward gave it."""
    node: int
    slot: int
    nbytes: int
    """Bytes that the slot held afterwards."""


def arrivals(database: Database, task: GraphTaskRow) -> list[ArrivalRow]:
    """All of a graph task, in the order in which they happened.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers(
        "SELECT ifnull(a, -2), ifnull(node, -1), ifnull(b, -1), ifnull(d, -1) FROM event"  # noqa: S608
        f" WHERE {DURING} AND kind = ? ORDER BY seq",
        *place(task),
        codec.KIND[events.GradientAccumulated],
    )
    found = list(map(ArrivalRow._make, rows))
    for row in found:
        are_nodes = -1 <= row.producer < task.nodes and 0 <= row.node < task.nodes
        if not are_nodes or min(row[2:]) < 0:
            raise database.damaged("a gradient arrived at a node that is not there")
    return found
