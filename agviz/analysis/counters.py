"""What goes up and down during a backward pass: depths of ReadyQueues, live gradient memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.passes import Passes
from agviz_engine import events
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.traces.reader import Trace
    from agviz_engine.events import Event

LIVE_BYTES: Final = "live gradient bytes"
"""Name of the gauge of the gradients in InputBuffers, those of running nodes included."""
_NEVER: Final = 2**63 - 1


class Reading(NamedTuple):
    """A gauge took a new value."""

    time_ns: int
    gauge: str
    """``ReadyQueue ...`` (in NodeTasks) or :data:`LIVE_BYTES` (in bytes)."""
    value: int


class QueueNames:
    """What the gauges of ReadyQueues are called."""

    def __init__(self, trace: Trace) -> None:
        self._tasks = trace.graph_tasks
        names = {thread.id: thread.name for thread in trace.threads}
        common = Counter(names.values())
        self._threads = {
            number: f"{name} #{number}" if common[name] > 1 else name
            for number, name in names.items()
        }

    def of(self, graph_task: int, queue: int) -> str:
        """The queue that is meant by ``queue`` in an event of ``graph_task``, one of the trace."""
        if queue != CPU_QUEUE:
            return f"ReadyQueue device {queue}"
        task = self._tasks.get(self._tasks.root(graph_task))
        number = -1 if task is None else task.thread
        name = self._threads.get(number, f"thread {number}")
        return f"ReadyQueue CPU, {name}"


class CounterReadings:
    """Reads the gauges during ``passes``; the events come from the caller, in order."""

    def __init__(self, passes: Passes) -> None:
        self._tasks = passes.known
        self._names = QueueNames(passes.trace)
        begins = [task.begin_seq for task in passes.tasks.values()]
        self._first_seq = min(begins, default=0)
        changes = passes.trace.live_changes(self._first_seq, _NEVER) if begins else ()
        self._changes = iter(changes)
        self._next = next(self._changes, None)

    def apply(self, event: Event) -> list[Reading]:
        """Move on by one event; gives what it changed.

        Of a graph task in which inference was withdrawn no queue is read: a gauge would keep for
        the rest of it what it had shown last.
        """
        if event.seq < self._first_seq or event.graph_task not in self._tasks:
            return []
        readings = []
        is_known = self._tasks[event.graph_task].withdrawn_seq is None
        if is_known and isinstance(event, events.QueuePush | events.QueuePop):
            readings.append(
                Reading(event.time_ns, self._names.of(event.graph_task, event.queue), event.size)
            )
        total = None
        while self._next is not None and self._next.seq <= event.seq:
            total = self._next.total
            self._next = next(self._changes, None)
        if total is not None:
            readings.append(Reading(event.time_ns, LIVE_BYTES, total))
        return readings


class CounterSeries(NamedTuple):
    """One gauge during one graph task."""

    gauge: str
    unit: str
    """``bytes`` or ``tasks``."""
    peak: int
    values: list[int]
    """The largest value within each step; all steps take the same time."""


def counter_series(trace: Trace, graph_task: int, steps: int) -> list[CounterSeries]:
    """What went up and down, live gradient memory first; gauges that stayed at zero are left out.

    So are queues where inference was withdrawn in any graph task meanwhile.

    Args:
        trace: the trace.
        graph_task: whose time is looked at; what others do at that time counts, too.
        steps: number of values of each gauge, 1 or more.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    task = trace.graph_task(graph_task)
    end_ns = Passes(trace, graph_task).last_ns() if task.end_ns is None else task.end_ns
    names = QueueNames(trace)
    found: dict[str, _Steps] = {}
    is_known = all(
        each.withdrawn_seq is None
        or each.begin_ns > end_ns
        or (each.end_ns is not None and each.end_ns < task.begin_ns)
        for each in trace.graph_tasks
    )
    for depth in trace.depths(graph_task, end_ns, steps) if is_known else ():
        if trace.graph_tasks.has(depth.graph_task):
            name = names.of(depth.graph_task, depth.queue)
            found.setdefault(name, _Steps(steps)).read(depth.step, depth.largest, depth.last)
    for live in trace.live_bytes(graph_task, end_ns, steps):
        found.setdefault(LIVE_BYTES, _Steps(steps)).read(live.step, live.largest, live.last)
    return [
        CounterSeries(name, "bytes" if name == LIVE_BYTES else "tasks", max(values), values)
        for name, read in sorted(found.items(), key=lambda item: (item[0] != LIVE_BYTES, item[0]))
        if max(values := list(read.finish())) > 0
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
