"""Reading what a process did across its graph tasks: from event to event, and side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.traces import codec
from agviz.traces.executions import STARTED
from agviz.traces.nodes import short_name
from agviz.traces.schema import EXECUTION
from agviz_engine import events

if TYPE_CHECKING:
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


class Place(NamedTuple):
    """An event, by its number, and the graph task it belongs to."""

    seq: int
    graph_task: int


class Turn(NamedTuple):
    """A node that a thread took up or was through with."""

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    node: int
    name: str
    """The node's short name."""
    is_start: bool


def near(
    database: Database, seq: int, count: int, *, thread: int | None, nodes: bool
) -> Place | None:
    """The ``count``-th event of any graph task after an event, before it where negative.

    Args:
        database: the file.
        seq: of the event; any number will do.
        count: not 0.
        thread: only what this thread did; None: any.
        nodes: count only where a node was taken up.
    """
    after, order = ("> ?", "ASC") if count > 0 else ("< ?", "DESC")
    conditions = ["graph_task >= 0", f"seq {after}"]
    given = [seq]
    if nodes:
        conditions += [EXECUTION, f"kind = {STARTED}"]
    else:
        conditions.append(f"kind <> {codec.KIND[events.GraphTaskBegun]}")
    if thread is not None:
        conditions.append("thread = ?")
        given.append(thread)
    rows = database.integers(
        f"SELECT seq, graph_task FROM event WHERE {' AND '.join(conditions)}"  # noqa: S608 - our words
        f" ORDER BY seq {order} LIMIT 1 OFFSET ?",
        *given,
        abs(count) - 1,
    )
    return Place(*rows[0]) if rows else None


def turns_beside(
    database: Database, contents: Contents, graph_task: int, after: int, until: int, limit: int
) -> list[Turn]:
    """What threads took up in other graph tasks between two events, in order.

    Args:
        database: the file.
        contents: what is known of it.
        graph_task: the one that is left out.
        after: ``seq`` of the first of the events, which is not told itself.
        until: of the last, which is.
        limit: at most so many.
    """
    rows = database.integers(
        "SELECT seq, t, thread, event.graph_task, event.node, name, kind"  # noqa: S608 - our words
        " FROM event JOIN node ON node.graph_task = event.graph_task AND node.idx = event.node"
        f" WHERE {EXECUTION} AND event.graph_task <> ? AND seq > ? AND seq <= ?"
        " ORDER BY seq LIMIT ?",
        graph_task,
        after,
        until,
        limit,
    )
    start_ns = contents.meta.start_ns
    return [
        Turn(
            *(seq, t + start_ns, thread, other, node),
            short_name(contents.name(called)),
            kind == STARTED,
        )
        for seq, t, thread, other, node, called, kind in rows
    ]
