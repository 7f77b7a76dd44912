"""Reading what is around a node without making the rows of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from agviz.traces import codec
from agviz.traces.database import DURING, place
from agviz.traces.nodes import short_name
from agviz.traces.rows import LEAF, EdgeRow
from agviz.traces.schema import CHECK
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame, GraphTaskRow


def edges_into(database: Database, graph_task: int, node: int) -> list[EdgeRow]:
    """The edges that lead into a node, by slot."""
    rows = database.integers(
        "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ? AND consumer = ?"
        " ORDER BY slot, producer, output",
        graph_task,
        node,
    )
    return [EdgeRow(*row) for row in rows]


def edges_from(database: Database, graph_task: int, node: int, limit: int) -> list[EdgeRow]:
    """The first edges that leave a node, by output."""
    rows = database.integers(
        "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ? AND producer = ?"
        " ORDER BY output LIMIT ?",
        graph_task,
        node,
        limit,
    )
    return [EdgeRow(*row) for row in rows]


def fan_out(database: Database, graph_task: int, node: int) -> tuple[int, int]:
    """Number of edges that leave a node, and of its outputs up to the last that is needed."""
    rows = database.integers(
        "SELECT count(*), coalesce(max(output) + 1, 0) FROM edge"
        " WHERE graph_task = ? AND producer = ?",
        graph_task,
        node,
    )
    return rows[0][0], rows[0][1]


def name(database: Database, contents: Contents, graph_task: int, node: int) -> str:
    """The short name of a node."""
    rows = database.integers(
        "SELECT name FROM node WHERE graph_task = ? AND idx = ?", graph_task, node
    )
    if not rows:
        raise database.damaged("an edge leads to a node that is not there")
    return short_name(contents.name(rows[0][0]))


class Identity(NamedTuple):
    """What tells one node from others, without the rest of its row."""

    node: int
    name: str
    """Torch's name."""
    sequence_nr: int | None
    """None: it is an AccumulateGrad."""
    device: int
    """Index of its queue."""
    parameter: str
    """Name of the parameter that it accumulates into; empty: none."""
    module: str
    """Path of the module whose forward made it, or that has the parameter; empty: none."""
    stack: tuple[Frame, ...]
    """Where the forward made it, outermost frame first; empty where that is not known."""


def identities(database: Database, contents: Contents, graph_task: int) -> Iterator[Identity]:
    """The nodes of a graph task, by index."""
    rows = database.integers(
        "SELECT idx, name, coalesce(sequence_nr, -1), queue, parameter, module,"
        " coalesce(stack, 0) FROM node LEFT JOIN origin"
        " ON origin.graph_task = node.graph_task AND origin.node = node.idx"
        " WHERE node.graph_task = ? ORDER BY idx",
        graph_task,
    )
    for node, called, sequence_nr, queue, parameter, module, stack in rows:
        if stack and stack not in contents.stacks:
            raise database.damaged("a stack is missing")
        owner = contents.name(parameter)
        yield Identity(
            node,
            contents.name(called),
            None if sequence_nr < 0 else sequence_nr,
            queue,
            owner,
            owner.rpartition(".")[0] if owner else contents.name(module),
            contents.stacks[stack] if stack else (),
        )


def leaves(database: Database, contents: Contents, graph_task: int) -> dict[int, str]:
    """The AccumulateGrad nodes and their parameters."""
    rows = database.integers(
        "SELECT idx, parameter, name FROM node WHERE graph_task = ? AND sequence_nr IS NULL"
        " ORDER BY idx",
        graph_task,
    )
    return {
        node: contents.name(parameter)
        for node, parameter, called in rows
        if short_name(contents.name(called)) == LEAF
    }


def captures(database: Database, task: GraphTaskRow) -> list[tuple[int, int]]:
    """Node and slot of each result of ``grad``, in order of capture."""
    rows = database.integers(
        f"SELECT node, a FROM event WHERE {DURING} AND kind = ? ORDER BY seq",  # noqa: S608
        *place(task),
        codec.KIND[events.GradientCaptured],
    )
    return [(node, slot) for node, slot in rows]


def ways(
    database: Database, graph_task: int, first: int, before: int
) -> list[tuple[int, int, float]]:
    """Consumer, producer and norm of what nodes put out between two events, in order."""
    rows = database.reals(
        "SELECT edge.consumer, event.node, norm FROM health CROSS JOIN event"  # noqa: S608
        " ON event.seq = health.seq JOIN edge ON edge.graph_task = event.graph_task"
        " AND edge.producer = event.node AND edge.output = event.a"
        f" WHERE health.seq >= ? AND health.seq < ? AND {CHECK} AND +event.graph_task = ?"
        " AND norm IS NOT NULL ORDER BY health.seq",
        first,
        before,
        graph_task,
    )
    return cast("list[tuple[int, int, float]]", rows)
