"""How the gauges went during one graph task, in as many steps as a chart has columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.gauges import LIVE_BYTES, QueueNames
from agviz.analysis.passes import Passes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.traces.reader import Trace


class Course(NamedTuple):
    """One gauge during one graph task."""

    gauge: str
    unit: str
    """``bytes`` or ``tasks``."""
    peak: int
    values: list[int]
    """The largest value within each step; all steps take the same time."""


def courses(trace: Trace, graph_task: int, steps: int) -> list[Course]:
    """What went up and down, live gradient memory first; gauges that stayed at zero are left out.

    Args:
        trace: the trace.
        graph_task: whose time is looked at; what others do at that time counts, too.
        steps: number of values of each gauge, 1 or more.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    task = trace.graph_task(graph_task)
    end_ns = Passes(trace, graph_task).last_ns() if task.end_ns is None else task.end_ns
    known = {task.id for task in trace.graph_tasks}
    names = QueueNames(trace)
    found: dict[str, _Steps] = {}
    for depth in trace.depths(graph_task, end_ns, steps):
        if depth.graph_task in known:
            name = names.of(depth.graph_task, depth.queue)
            found.setdefault(name, _Steps(steps)).read(depth.step, depth.largest, depth.last)
    for live in trace.live_bytes(graph_task, end_ns, steps):
        found.setdefault(LIVE_BYTES, _Steps(steps)).read(live.step, live.largest, live.last)
    return [
        Course(name, "bytes" if name == LIVE_BYTES else "tasks", max(values), values)
        for name, course in sorted(found.items(), key=lambda item: (item[0] != LIVE_BYTES, item[0]))
        if max(values := list(course.finish())) > 0
    ]


def in_steps(changes: Iterable[tuple[int, int]], end_ns: int, steps: int) -> list[int]:
    """The largest value of a gauge within each of ``steps`` steps from 0 to ``end_ns``.

    Args:
        changes: times from 0 on, and the value from then on; in order.
        end_ns: where the last step ends.
        steps: their number, 1 or more.
    """
    found = _Steps(steps)
    for time_ns, value in changes:
        found.read(min(time_ns * steps // max(1, end_ns), steps - 1), value, value)
    return list(found.finish())


class _Steps:
    """The values of one gauge, while they are read."""

    def __init__(self, steps: int) -> None:
        self._largest: list[int | None] = [None] * steps
        self._last = [0] * steps
        """What the gauge showed at the end of each step that has a value."""

    def read(self, step: int, largest: int, last: int) -> None:
        known = self._largest[step]
        self._largest[step] = largest if known is None else max(known, largest)
        self._last[step] = last

    def finish(self) -> Iterator[int]:
        """The largest value of each step; a gauge keeps its value until it is read again."""
        kept = 0
        for largest, last in zip(self._largest, self._last, strict=True):
            yield kept if largest is None else max(kept, largest)
            kept = kept if largest is None else last
