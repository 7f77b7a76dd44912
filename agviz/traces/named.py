"""Finding nodes by what they are called, in whichever graph task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.traces.executions import STARTED
from agviz.traces.schema import EXECUTION

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


def graph_tasks(
    database: Database, contents: Contents, first: int, last: int, fits: Callable[[str], bool]
) -> list[int]:
    """Those from ``first`` to ``last`` with a node whose name, module or parameter fits."""
    rows = database.integers(
        "SELECT DISTINCT graph_task, name, parameter, module FROM node"
        " WHERE graph_task BETWEEN ? AND ?",
        first,
        last,
    )
    good = _good(contents, rows, fits)
    found = {row[0] for row in rows if not good.isdisjoint(row[1:])}
    return sorted(found & contents.graph_tasks.keys())


def nodes(
    database: Database, contents: Contents, graph_task: int, fits: Callable[[str], bool]
) -> list[tuple[int, int | None]]:
    """The nodes of a graph task that fit, and ``seq`` of their NodeStarted: in order of these.

    Those that never started come last, by index.
    """
    rows = database.integers(
        "SELECT idx, name, parameter, module FROM node WHERE graph_task = ? ORDER BY idx",
        graph_task,
    )
    good = _good(contents, rows, fits)
    wanted = dict.fromkeys(row[0] for row in rows if not good.isdisjoint(row[1:]))
    started = database.integers(
        f"SELECT node, seq FROM event WHERE {EXECUTION} AND kind = ? AND graph_task = ?"  # noqa: S608
        " ORDER BY seq",
        STARTED,
        graph_task,
    )
    found: dict[int, int | None] = {}
    for node, seq in started:
        if node in wanted:
            found.setdefault(node, seq)
    for node in wanted:
        found.setdefault(node, None)
    return list(found.items())


def _good(contents: Contents, rows: list[tuple[int, ...]], fits: Callable[[str], bool]) -> set[int]:
    """The ids of texts that fit."""
    ids = {number for row in rows for number in row[1:]} - {0}
    return {number for number in ids if fits(contents.name(number))}
