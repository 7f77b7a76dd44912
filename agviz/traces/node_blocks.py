"""Finding the events of a node: where the file says that some are, and else everywhere."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from agviz.traces import codec
from agviz.traces.schema import ARRIVAL, BLOCK
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Collection

    from agviz.traces.database import Database

_ACCUMULATED: Final = codec.KIND[events.GradientAccumulated]
_ARRIVALS: Final = (codec.KIND[events.DependencyDecremented], _ACCUMULATED)


class NodeBlocks:
    """The table ``node_block`` of a file, which is empty until the recording is closed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, graph_task: int, node: int, kinds: Collection[int] = ()) -> str:
        """The SQL condition of the events of a node; no kinds: of any."""
        mine = _of_node(graph_task, node)
        if not kinds:
            return self._near(graph_task, node, mine)
        mine += f" AND event.kind IN ({', '.join(f'{kind:d}' for kind in kinds)})"
        are_arrivals = {kind in _ARRIVALS for kind in kinds}
        if len(are_arrivals) > 1:
            return self._near(graph_task, node, mine)
        return self._near(graph_task, node, mine, f"arrivals = {are_arrivals.pop():d}")

    def about(self, graph_task: int, node: int) -> str:
        """The same for the events of a node and those in which it gave a gradient to a consumer."""
        gave = f"event.a = {node:d} AND {ARRIVAL}"
        mine = f"event.graph_task = {graph_task:d} AND (event.node = {node:d} OR {gave})"
        return self._near(graph_task, node, mine)

    def arrived(self, graph_task: int, node: int) -> list[tuple[int, ...]]:
        """Of the last gradient that arrived at a node: slot, how many did, bytes and ``seq``.

        Empty where none did.
        """
        mine = f"{_of_node(graph_task, node)} AND event.kind = {_ACCUMULATED}"
        places = [self.of(graph_task, node, [_ACCUMULATED])]
        count = f"SELECT count(*) FROM event WHERE {mine}"  # noqa: S608 - numbers
        if self._are_stored:
            blocks = f"graph_task = {graph_task:d} AND node = {node:d} AND arrivals = 1"
            last = f"block = (SELECT max(block) FROM node_block WHERE {blocks})"  # noqa: S608
            places.insert(0, self._near(graph_task, node, mine, f"arrivals = 1 AND {last}"))
            count = f"SELECT ifnull(sum(gradients), 0) FROM node_block WHERE {blocks}"  # noqa: S608
        for place in places:
            rows = self._database.integers(
                f"SELECT b, d, seq FROM event WHERE {place} ORDER BY seq DESC LIMIT 1"  # noqa: S608
            )
            if rows:
                ((slot, nbytes, seq),) = rows
                return [(slot, self._database.value(count), nbytes, seq)]
        return []

    def _near(self, graph_task: int, node: int, condition: str, blocks: str = "TRUE") -> str:
        """A condition whose events are looked for in some blocks of a node only."""
        if not self._are_stored:
            return condition
        return (
            "event.seq IN (SELECT event.seq FROM node_block CROSS JOIN event"  # noqa: S608
            f" ON event.seq BETWEEN block * {BLOCK} AND block * {BLOCK} + {BLOCK - 1}"
            f" WHERE node_block.graph_task = {graph_task:d} AND node_block.node = {node:d}"
            f" AND {blocks} AND {condition})"
        )

    @cached_property
    def _are_stored(self) -> bool:
        return bool(self._database.value("SELECT EXISTS (SELECT 1 FROM node_block)"))


def _of_node(graph_task: int, node: int) -> str:
    return f"event.graph_task = {graph_task:d} AND event.node = {node:d}"
