"""Reading what is around a node without making the rows of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.traces import codec
from agviz.traces.rows import EdgeRow
from agviz.traces.schema import CHECK
from agviz_engine import events

if TYPE_CHECKING:
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


def edges_into(database: Database, graph_task: int, node: int) -> list[EdgeRow]:
    """The edges that lead into a node, by slot."""
    rows = database.integers(
        "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ? AND consumer = ?"
        " ORDER BY slot, producer, output",
        graph_task,
        node,
    )
    return [EdgeRow(*row) for row in rows]


def edges_from(database: Database, graph_task: int, node: int) -> list[EdgeRow]:
    """The edges that leave a node, by output."""
    rows = database.integers(
        "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ? AND producer = ?"
        " ORDER BY output",
        graph_task,
        node,
    )
    return [EdgeRow(*row) for row in rows]


def leaves(database: Database, contents: Contents, graph_task: int) -> dict[int, str]:
    """The AccumulateGrad nodes, to which torch gives no sequence number, and their parameters."""
    rows = database.integers(
        "SELECT idx, parameter FROM node WHERE graph_task = ? AND sequence_nr IS NULL ORDER BY idx",
        graph_task,
    )
    return {node: contents.name(parameter) for node, parameter in rows}


def captures(database: Database, graph_task: int) -> list[tuple[int, int]]:
    """Node and slot of each result of ``grad``, in order of capture."""
    rows = database.integers(
        "SELECT node, a FROM event WHERE graph_task = ? AND kind = ? ORDER BY seq",
        graph_task,
        codec.KIND[events.GradientCaptured],
    )
    return [(node, slot) for node, slot in rows]


def norms(
    database: Database, graph_task: int, first: int, before: int
) -> dict[tuple[int, int], float]:
    """Norms of what nodes put out between two events, by node and output, where they are known."""
    rows = database.reals(
        "SELECT event.node, event.a, norm FROM health JOIN event ON event.seq = health.seq"  # noqa: S608
        f" WHERE health.seq >= ? AND health.seq < ? AND {CHECK} AND graph_task = ?"
        " AND norm IS NOT NULL",
        first,
        before,
        graph_task,
    )
    return {(int(node or 0), int(output or 0)): norm or 0.0 for node, output, norm in rows}
