"""The graph tasks somebody asked about, and the stretch of events that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.reader import Trace
    from agviz_engine.events import Event

_EVENTS_PER_PAGE: Final = 5_000
_NODES_KEPT: Final = 50_000


class Passes:
    """A whole trace, or one graph task with the reentrant ones inside it.

    Args:
        trace: where they are recorded.
        graph_task: the one that is meant; None: all of the trace.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """

    def __init__(self, trace: Trace, graph_task: int | None = None) -> None:
        self.trace = trace
        self.known = {task.id: task for task in trace.graph_tasks}
        """Every graph task of the trace, by id."""
        self.tasks = dict(self.known)
        """Those that are meant, by id; parents come before their children."""
        self._first, self._end = 0, trace.event_count()
        if graph_task is not None:
            task = trace.graph_task(graph_task)
            self.tasks = {graph_task: task}
            for other in self.known.values():
                if other.parent in self.tasks:
                    self.tasks[other.id] = other
            self._first = trace.position(task.begin_seq)
            if task.end_seq is not None:
                self._end = trace.position(task.end_seq) + 1
        self.is_whole = graph_task is None
        """Whether all of the trace is meant."""
        self._nodes_read = 0

    @property
    def count(self) -> int:
        """Number of events that :meth:`events` gives."""
        return max(0, self._end - self._first)

    def events(self) -> Iterator[Event]:
        """All events of the stretch in order, those of other graph tasks included."""
        for offset in range(self._first, self._end, _EVENTS_PER_PAGE):
            limit = min(_EVENTS_PER_PAGE, self._end - offset)
            yield from self.trace.events(offset=offset, limit=limit)

    def covers(self, event: Event) -> bool:
        """Whether ``event`` belongs to what is meant; one of no graph task belongs to the trace."""
        number = event.graph_task
        return number in self.tasks or (self.is_whole and number == NO_GRAPH_TASK)

    def forget(self, nodes: int) -> None:
        """So many nodes were read and are no longer needed.

        Every now and then the trace drops what it keeps: counting anew takes its time.
        """
        self._nodes_read += nodes
        if self._nodes_read > _NODES_KEPT:
            self.trace.forget()
            self._nodes_read = 0

    def last_ns(self) -> int:
        """Time of the last event of the stretch; the start of the recording where there is none."""
        if self.count:
            last = self.trace.events(offset=self._end - 1, limit=1)
            if last:
                return last[0].time_ns
        return self.trace.meta.start_ns
