"""What goes up and down during a backward pass: depths of ReadyQueues, live gradient memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz_engine import events
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from agviz.analysis.passes import Passes
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
        self._tasks = {task.id: task for task in trace.graph_tasks}
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
        task = self._tasks[graph_task]
        while task.parent in self._tasks and task.parent < task.id:
            task = self._tasks[task.parent]
        name = self._threads.get(task.thread, f"thread {task.thread}")
        return f"ReadyQueue CPU, {name}"


class Gauges:
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
        """Move on by one event; gives what it changed."""
        if event.seq < self._first_seq or event.graph_task not in self._tasks:
            return []
        readings = []
        if isinstance(event, events.QueuePush | events.QueuePop):
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
