"""Nodes that can be run alone: how they come into the file, and out of it.

What is kept of a node is a safetensors file, of which this knows nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agviz.traces.schema import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.database import Database


class Isolated(NamedTuple):
    """A node on its way to the file."""

    graph_task: int
    node: int
    data: bytes

    def rows(
        self, _text: Callable[[str], int], _stack: object
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """The table, and the rows for it."""
        for part, begin in enumerate(range(0, len(self.data), CHUNK_BYTES)):
            piece = self.data[begin : begin + CHUNK_BYTES]
            yield "isolated", (self.graph_task, self.node, part, piece)


def listed(database: Database) -> list[tuple[int, int]]:
    """Graph task and node of each, in order of these.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers(
        "SELECT DISTINCT graph_task, node FROM isolated ORDER BY graph_task, node"
    )
    return [(graph_task, node) for graph_task, node in rows]


def read(database: Database, graph_task: int, node: int) -> bytes:
    """What was kept of a node; empty where nothing was.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    parts = database.blobs(
        "SELECT part, bytes FROM isolated WHERE graph_task = ? AND node = ? ORDER BY part",
        graph_task,
        node,
    )
    if [number for number, _ in parts] != list(range(len(parts))):
        raise database.damaged("a part of a node is missing")
    return b"".join(piece for _, piece in parts)
