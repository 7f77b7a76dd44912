"""Ways: which gradients led into each node of a pass, and how large they were."""

from __future__ import annotations

import math
import time
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from agviz.traces.nodes import EdgeNorm
    from agviz.traces.reader import Trace

_PIECE: Final = 10_000
"""Events that are read at once: some ms."""
_UNKNOWN: Final = -1.0


class WayIn(NamedTuple):
    """A gradient on its way into a node."""

    producer: int
    output: int
    """Among the outputs of the producer."""
    slot: int
    """Among the inputs of the node."""
    norm: float | None
    """NaN: not finite; None: not measured."""

    @property
    def size(self) -> float:
        """How large it is; what is not finite is larger than all else."""
        if self.norm is None:
            return _UNKNOWN
        return math.inf if math.isnan(self.norm) else self.norm


class Ways:
    """The measured gradients of one graph task, in columns: some thirty bytes for each edge.

    Args:
        trace: which holds it.
        graph_task: the pass.
        before: only what happened before this event; None: everything.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace, graph_task: int, before: int | None = None) -> None:
        task = trace.graph_task(graph_task)
        self._graph_task = graph_task
        self._begin = self._next = task.begin_seq
        end = trace.last_seq if task.end_seq is None else task.end_seq
        self._before = end + 1 if before is None else min(before, end + 1)
        self._last_into = array("i", [-1]) * max(task.nodes, 0)
        """By node: the last known way into it."""
        self._earlier = array("i")
        """By way: the one before that leads into the same node; -1: none."""
        self._producers = array("i")
        self._outputs = array("i")
        self._slots = array("i")
        self._norms = array("d")

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def is_read(self) -> bool:
        """Whether all is known."""
        return self._next >= self._before

    @property
    def share(self) -> float:
        """How much of it was read."""
        return (self._next - self._begin) / max(1, self._before - self._begin)

    def read_on(self, trace: Trace, seconds: float = math.inf) -> bool:
        """Read for about so long; return whether all is known.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        until = time.perf_counter() + seconds
        while not self.is_read:
            first, self._next = self._next, min(self._next + _PIECE, self._before)
            try:
                for way in trace.ways(self._graph_task, first, self._next):
                    self._add(trace, way)
            except OverflowError:
                raise trace.damaged("an edge has a number that no graph reaches") from None
            if time.perf_counter() >= until:
                break
        return self.is_read

    def _add(self, trace: Trace, way: EdgeNorm) -> None:
        nodes = len(self._last_into)
        if not (0 <= way.producer < nodes and 0 <= way.consumer < nodes):
            raise trace.damaged("an edge joins nodes that are not there")
        self._earlier.append(self._last_into[way.consumer])
        self._last_into[way.consumer] = len(self._producers)
        self._producers.append(way.producer)
        self._outputs.append(way.output)
        self._slots.append(way.slot)
        norm = _UNKNOWN if way.norm is None else way.norm
        self._norms.append(math.nan if way.bad else norm)

    def into(self, node: int) -> list[WayIn]:
        """What led into a node, the largest first, then in order of time."""
        found = []
        way = self._last_into[node]
        while way >= 0:
            norm = self._norms[way]
            known = None if norm == _UNKNOWN else norm
            found.append(WayIn(self._producers[way], self._outputs[way], self._slots[way], known))
            way = self._earlier[way]
        found.reverse()
        return sorted(found, key=lambda each: -each.size)
