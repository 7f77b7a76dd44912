"""Reading where gradients were not finite: as many rows as there are such gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.health import ROLE, ROLES, SLOT
from agviz.traces.schema import CHECK

if TYPE_CHECKING:
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import GraphTaskRow

_MEASURED: Final = (
    "health JOIN event ON event.seq = health.seq WHERE health.nan + posinf + neginf > 0"
)
"""Gradients with NaN or infinities, where gradients were measured."""
_CHECKED: Final = f"event WHERE {CHECK} AND b + c + d > 0"
"""The same, where only the non-finite check was made."""
_NEVER: Final = 2**63 - 1


class Flow(NamedTuple):
    """A gradient with NaN or infinities, and where it went."""

    seq: int
    """Of the event in which it flowed; a gradient is measured before it is handed on."""
    node: int
    role: str
    """As in :class:`agviz.traces.health.HealthRow`."""
    slot: int
    """The same."""
    consumer: int
    """For an output: the node that receives it, or -1; for all others -1."""
    consumer_slot: int


def flows(database: Database, contents: Contents, task: GraphTaskRow) -> list[Flow]:
    """The gradients of a graph task that were not finite, in order of ``seq``.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    last = _NEVER if task.end_seq is None else task.end_seq
    rows = database.integers(
        "SELECT found.seq, node, role, place, coalesce(edge.consumer, -1), coalesce(edge.slot, -1)"  # noqa: S608
        f" FROM (SELECT event.seq, node, {ROLE} AS role, {SLOT} AS place FROM {_source(contents)}"
        " AND event.graph_task = ? AND event.seq BETWEEN ? AND ?) AS found"
        " LEFT JOIN edge ON role = 0 AND edge.graph_task = ? AND edge.producer = node"
        " AND edge.output = place ORDER BY found.seq",
        task.id,
        task.begin_seq,
        last,
        task.id,
    )
    if any(row[2] >= len(ROLES) or not 0 <= row[1] < task.nodes for row in rows):
        raise database.damaged("a gradient's health makes no sense")
    return [Flow(seq, node, ROLES[role], *place) for seq, node, role, *place in rows]


def graph_tasks(database: Database, contents: Contents) -> list[int]:
    """The graph tasks in which some gradient was not finite, in order of the first."""
    rows = database.integers(
        f"SELECT event.graph_task FROM {_source(contents)}"  # noqa: S608
        " GROUP BY event.graph_task ORDER BY min(event.seq)"
    )
    return [number for (number,) in rows if number in contents.graph_tasks]


def _source(contents: Contents) -> str:
    return _CHECKED if contents.meta.values == "none" else _MEASURED
