"""Reading what nodes had saved that turned finite gradients into others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agviz.traces import health
from agviz.traces.database import given, of
from agviz.traces.rows import SavedHealthRow

if TYPE_CHECKING:
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


def read(
    database: Database,
    contents: Contents,
    graph_task: int,
    node: int | None,
    table: str = "saved_health",
) -> list[SavedHealthRow]:
    """In order of nodes and of torch's names; ``node``: only what this one had.

    Args:
        database: the file.
        contents: of it.
        graph_task: which.
        node: only what this one had; None: all.
        table: ``saved_health``, or ``root_saved`` for what nodes near a non-finite loss had.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    where = f"graph_task = ? {of(node, 'node')}"
    rows = cast(
        "list[tuple[Any, ...]]",
        database.numbers(
            f"SELECT node, name, parameter, value, health FROM {table}"  # noqa: S608
            f" WHERE {where} ORDER BY node, number",
            graph_task,
            *given(node),
        ),
    )
    measured = health.read_measured(
        database,
        contents,
        f"SELECT health FROM {table} WHERE {where}",  # noqa: S608
        graph_task,
        *given(node),
    )
    found = []
    text = contents.name
    for index, name, parameter, value, number in rows:
        is_one = (value is None) != (number is None)
        is_there = number is None or number in measured
        if None in {index, name, parameter} or not is_one or not is_there:
            raise database.damaged("a saved tensor lacks a fact")
        plain = None if value is None else text(value)
        of_tensor = None if number is None else measured[number]
        found.append(SavedHealthRow(index, text(name), text(parameter), plain, of_tensor))
    return found
