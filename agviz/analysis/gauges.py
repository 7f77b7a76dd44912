"""What goes up and down during a backward pass: depths of ReadyQueues, live gradient memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz_engine import events
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from agviz.analysis.passes import Passes
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


class Gauges:
    """Replays ``passes`` and reads the gauges; the events come from the caller, in order."""

    def __init__(self, passes: Passes) -> None:
        self._tasks = passes.known
        self._state: BackwardState | None = None
        if passes.tasks:
            first = min(passes.tasks.values(), key=lambda task: task.begin_seq)
            self._state = passes.trace.state_at(first.id, 0)
        self._bytes = 0
        names = {thread.id: thread.name for thread in passes.trace.threads}
        common = Counter(names.values())
        self._threads = {
            number: f"{name} #{number}" if common[name] > 1 else name
            for number, name in names.items()
        }

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
            readings.append(Reading(event.time_ns, self._queue(event), event.size))
        if state.live_bytes != self._bytes:
            self._bytes = state.live_bytes
            readings.append(Reading(event.time_ns, LIVE_BYTES, self._bytes))
        return readings

    def _queue(self, event: events.QueuePush | events.QueuePop) -> str:
        if event.queue != CPU_QUEUE:
            return f"ReadyQueue device {event.queue}"
        task = self._tasks[event.graph_task]
        while task.parent in self._tasks and task.parent < task.id:
            task = self._tasks[task.parent]
        name = self._threads.get(task.thread, f"thread {task.thread}")
        return f"ReadyQueue CPU, {name}"
