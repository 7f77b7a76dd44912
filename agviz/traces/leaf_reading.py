"""LeafReading: the gradients that leaves have after each backward pass of a run, piece by piece."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from agviz.traces.reader import Trace
    from agviz.traces.rows import LeafNorm

_PIECE: Final = 20_000
"""Events of which norms are read at once: some ms."""


class LeafReading:
    """Goes through a run once. Reentrant passes are one with the pass around.

    Args:
        trace: stays open as long as this is used.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._norms: dict[int, dict[tuple[int, int], LeafNorm]] = defaultdict(dict)
        """By pass and leaf, of passes that have not been read to their end."""
        self._next = 0
        """The first event that was not read."""
        self.renew()

    def renew(self) -> None:
        """Take over what has come to a file that grows.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        self._all = self._trace.graph_tasks
        self.tasks = self._all.outermost
        """The passes, in order of time."""
        self._before = self._trace.last_seq + 1

    def place(self, graph_task: int) -> int | None:
        """The place of a graph task, or of the pass it is inside of; None: there is none."""
        return self.tasks.place(self._all.root(graph_task))

    @property
    def is_read(self) -> bool:
        """Whether all was read."""
        return self._next >= self._before

    @property
    def until(self) -> int:
        """The first event that was not read."""
        return self._next

    def read_piece(self) -> list[tuple[int, Collection[LeafNorm]]]:
        """Read on; the places of the passes of which all is known now, in order.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        first, self._next = self._next, min(self._next + _PIECE, self._before)
        for found in self._trace.leaf_norms(first, self._next):
            graph_task = self._all.root(found.graph_task)
            self._norms[graph_task][found.graph_task, found.node] = found
        is_whole = self._next == self._before and not self._trace.is_growing
        whole: list[tuple[int, Collection[LeafNorm]]] = []
        for graph_task in sorted(self._norms):
            place = self.tasks.place(graph_task)
            end = -1 if place is None else self.tasks.end_seqs[place]
            if is_whole or 0 <= end < self._next:
                leaves = self._norms.pop(graph_task)
                if place is not None:  # in an order that pieces don't change: sums are rounded
                    whole.append((place, [leaves[node] for node in sorted(leaves)]))
        return whole
