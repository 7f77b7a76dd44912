"""Reading where gradients were not finite: as many rows as there are such gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.events import FROM_MEASURED
from agviz.traces.health import ROLE, ROLES, SLOT
from agviz.traces.schema import AT, CHECK, FINDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import GraphTaskRow

_IS_BAD: Final = "health.nan + posinf + neginf > 0"
_MEASURED_BAD: Final = f"{FROM_MEASURED} WHERE {_IS_BAD}"
"""The same where only the non-finite check was made, of what nodes put out."""
_EDGE: Final = (
    "LEFT JOIN edge ON edge.graph_task = event.graph_task AND edge.producer = event.node"
    " AND edge.output = event.a"
)
_NEVER: Final = 2**63 - 1
_ONE_BY_ONE: Final = 1_000
"""Up to so many graph tasks, each is asked for its first by itself, which may end early."""


class Flow(NamedTuple):
    """A gradient with NaN or infinities that is no output of a node."""

    seq: int
    """``seq`` of the event in which it flowed."""
    node: int
    role: str
    """As in :class:`agviz.traces.health.HealthRow`."""
    slot: int
    """As there."""


class Flows(NamedTuple):
    """The gradients of a graph task that were not finite, each list in order of ``seq``."""

    outputs: list[tuple[int, ...]]
    """Seq, node and output of what a node put out, and the node and slot that it went to, or -1.
    It is measured before it is handed on. There may be very many."""
    others: list[Flow]


def flows(database: Database, contents: Contents, task: GraphTaskRow) -> Flows:
    """The gradients of a graph task that were not finite.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    is_measured = contents.meta.values != "none"
    outputs = database.integers(
        "SELECT event.seq, event.node, event.a, coalesce(edge.consumer, -1),"  # noqa: S608
        f" coalesce(edge.slot, -1) FROM {FROM_MEASURED if is_measured else 'event'} {_EDGE} WHERE"
        f" {f'{_IS_BAD} AND {CHECK}' if is_measured else FINDING}"
        f" AND {_within(is_measured)}",
        *_place(task),
    )
    others = database.integers(
        f"SELECT {AT}, event.node, {ROLE}, {SLOT} FROM {FROM_MEASURED} WHERE {_IS_BAD}"  # noqa: S608
        f" AND NOT {CHECK} AND {_within(is_measured=True)}",
        *_place(task),
    )
    if any(row[2] >= len(ROLES) or not 0 <= row[1] < task.nodes for row in others):
        raise database.damaged("a gradient's health makes no sense")
    named = [Flow(seq, node, ROLES[role], slot) for seq, node, role, slot in others]
    return Flows(outputs, named)


def firsts(database: Database, contents: Contents) -> dict[int, int]:
    """``seq`` of the event of the first gradient of each graph task that was not finite, if any."""
    tasks = contents.graph_tasks
    if len(tasks) > _ONE_BY_ONE:
        is_measured = contents.meta.values != "none"
        source = f"{FROM_MEASURED} WHERE {_IS_BAD}" if is_measured else f"event WHERE {FINDING}"
        rows = database.integers(
            f"SELECT event.graph_task, min({AT}) FROM {source} GROUP BY event.graph_task"  # noqa: S608
        )
        return {number: seq for number, seq in rows if tasks.has(number)}
    found = ((task.id, first(database, contents, task)) for task in tasks)
    return {number: seq for number, seq in found if seq is not None}


def first(database: Database, contents: Contents, task: GraphTaskRow) -> int | None:
    """``seq`` of the event in which the first such gradient of a graph task flowed, or None."""
    is_measured = contents.meta.values != "none"
    source = _MEASURED_BAD if is_measured else f"event WHERE {FINDING}"
    rows = database.integers(
        f"SELECT {AT} FROM {source} AND {_within(is_measured)} LIMIT 1",  # noqa: S608
        *_place(task),
    )
    return rows[0][0] if rows else None


def results(database: Database, contents: Contents, affected: Sequence[int]) -> list[int]:
    """The graph tasks of which something non-finite came to a leaf, or is a result of ``grad``.

    Where only what nodes put out was looked at, those in which any of that was not finite.

    Args:
        database: the file.
        contents: its graph tasks.
        affected: those in which some gradient was not finite, by id.
    """
    if contents.meta.values == "none":
        return list(affected)
    return [
        task.id
        for task in map(contents.graph_tasks.get, affected)
        if task is not None
        and database.integers(
            "SELECT 1 FROM (SELECT event.graph_task AS task,"  # noqa: S608
            f" CASE WHEN {CHECK} THEN edge.consumer ELSE event.node END AS reached"
            f" FROM {FROM_MEASURED} {_EDGE} AND {CHECK} WHERE {_IS_BAD}"
            f" AND {_within(is_measured=True)})"
            " JOIN graph_task ON graph_task.id = task"
            " JOIN node ON node.graph_task = task AND node.idx = reached"
            f" WHERE accumulate = 0 OR sequence_nr IS NULL LIMIT 1",
            *_place(task),
        )
    ]


def _within(is_measured: bool) -> str:
    """The condition for what belongs to :func:`_place`, in order of ``seq``."""
    seq = "health.seq" if is_measured else "event.seq"
    return f"+event.graph_task = ? AND {seq} BETWEEN ? AND ? ORDER BY {seq}"


def _place(task: GraphTaskRow) -> tuple[int, int, int]:
    return task.id, task.begin_seq, _NEVER if task.end_seq is None else task.end_seq
