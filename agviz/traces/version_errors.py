"""Reading what nodes could not use because it had been modified since they saved it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.traces.rows import VersionErrorRow
from agviz.words.shapes import read_shape

if TYPE_CHECKING:
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database


def read(database: Database, contents: Contents, graph_task: int) -> list[VersionErrorRow]:
    """In order of nodes.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    text = contents.name
    found = []
    for node, name, shape, dtype, version, expected, parameter, memory in database.integers(
        "SELECT node, name, shape, dtype, version, expected, parameter, memory FROM version_error"
        " WHERE graph_task = ? ORDER BY node",
        graph_task,
    ):
        try:
            sizes = read_shape(text(shape))
        except (ValueError, RecursionError) as error:
            raise database.damaged("a shape is none") from error
        facts = version, expected, text(parameter), memory
        found.append(VersionErrorRow(node, text(name), sizes, text(dtype), *facts))
    return found
