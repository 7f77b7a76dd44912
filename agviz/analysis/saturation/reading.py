"""The passes of a run that are looked at for saturation, read once each.

Note [Which passes]
The first, the last two and some between, evenly apart: up to eight, whose nodes come to at most
20,000 in all. Of a larger pass nothing is read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.median import median
from agviz.analysis.saturation.sites import PassSites
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow

_MOST_PASSES: Final = 8
_MOST_NODES: Final = 20_000
_LAST_LOSSES: Final = 3
"""Of which the middle one counts: the loss of a single batch is noise."""
_FALLEN: Final = 0.5
"""A loss that came down to so much of what it was has learnt something."""


class RunSaturation:
    """What was read of the passes of a run.

    Args:
        trace: the trace.
        graph_task: the only pass that is meant; None: those of the run.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """

    def __init__(self, trace: Trace, graph_task: int | None = None) -> None:
        self.trace = trace
        self._known: dict[int, PassSites] = {}
        self._nodes = 0
        tasks = trace.graph_tasks.outermost.accumulating
        if graph_task is not None:
            tasks = tasks.only(graph_task)
        self._ids: Sequence[int] = tasks.ids
        chosen = [tasks[place] for place in _places(len(tasks), max(tasks.nodes, default=0))]
        self.passes = [self.read(task.id) for task in chosen if _is_whole(task)]
        """In order; only those that came to their end."""

    def read(self, graph_task: int) -> PassSites:
        """The activations of a pass."""
        if graph_task not in self._known:
            self._nodes += self.trace.graph_task(graph_task).nodes
            self._known[graph_task] = PassSites(self.trace, graph_task)
        return self._known[graph_task]

    def between(self, first: int, last: int) -> int | None:
        """A pass about halfway between two others; None: there is none, or too much was read."""
        places = [place for place, each in enumerate(self._ids) if first < each < last]
        if not places or self._nodes > 2 * _MOST_NODES:
            return None
        middle = self.trace.graph_task(self._ids[places[len(places) // 2]])
        return middle.id if _is_whole(middle) else None

    def is_learning(self, since: int) -> bool:
        """Whether the loss has fallen much from a pass on to the end of the run."""
        losses = self.trace.losses()
        known = [
            losses[each]
            for each in self._ids
            if each >= since and each in losses and math.isfinite(losses[each])
        ]
        if len(known) < 2:
            return False
        first, last = known[0], median(known[-_LAST_LOSSES:])
        return first - last >= (1 - _FALLEN) * abs(first) > 0

    def loss(self, graph_task: int) -> float | None:
        """The loss of a pass; None: not known."""
        return self.trace.losses().get(graph_task)


def _places(count: int, nodes: int) -> list[int]:
    """Note [Which passes]."""
    if not count or nodes > _MOST_NODES:
        return []
    most = min(_MOST_PASSES, count, max(1, _MOST_NODES // max(1, nodes)))
    if most < 2:
        return [count - 1]
    spread = [number * (count - 1) // (most - 1) for number in range(most)]
    return sorted({*spread, *([count - 2] if most > 2 else [])})


def _is_whole(task: GraphTaskRow) -> bool:
    return task.status is GraphTaskStatus.FINISHED and not task.traced
