"""What goes up and down during a backward pass: depths of ReadyQueues, live gradient memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz_engine import events
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from agviz.analysis.passes import Passes
    from agviz.traces.reader import Trace
    from agviz.traces.state import BackwardState
    from agviz_engine.events import Event

LIVE_BYTES: Final = "live gradient bytes"
"""Name of the gauge of the gradients in InputBuffers, those of running nodes included."""


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
    """Replays ``passes`` and reads the gauges; the events come from the caller, in order."""

    def __init__(self, passes: Passes) -> None:
        self._tasks = passes.known
        self._state: BackwardState | None = None
        if passes.tasks:
            first = min(passes.tasks.values(), key=lambda task: task.begin_seq)
            self._state = passes.trace.state_at(first.id, 0)
        self._bytes = 0
        self._names = QueueNames(passes.trace)

    def apply(self, event: Event) -> list[Reading]:
        """Move on by one event; gives what it changed.

        Raises:
            agviz.traces.state.ImpossibleEventError: the event can't happen at this point.
        """
        state = self._state
        if state is None or event.seq <= state.seq or event.graph_task not in self._tasks:
            return []
        state.apply(event)
        readings = []
        if isinstance(event, events.QueuePush | events.QueuePop):
            readings.append(
                Reading(event.time_ns, self._names.of(event.graph_task, event.queue), event.size)
            )
        if state.live_bytes != self._bytes:
            self._bytes = state.live_bytes
            readings.append(Reading(event.time_ns, LIVE_BYTES, self._bytes))
        return readings
