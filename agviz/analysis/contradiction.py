"""Whether the events of a graph task can have happened: a damaged or hostile file may hold any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.traces.state import ImpossibleEventError
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow
    from agviz_engine.events import Event

MOST_EVENTS: Final = 20_000
"""So many are replayed, from the begin of the outermost graph task; that takes some 0.2 s."""
_PAGE: Final = 500
_DROPPING: Final = (events.NodeFailed, events.GraphTaskFailed, events.InferenceWithdrawn)


def contradiction(trace: Trace, graph_task: int) -> str | None:
    """What can't have happened, in a sentence; None: nothing, as far as was looked.

    Of recordings with holes, whose events may contradict each other, nothing is said.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    state, tasks = trace.replay(), trace.graph_tasks
    trace.graph_task(graph_task)
    outermost = trace.graph_task(tasks.root(graph_task))
    begin = outermost.begin_seq
    known = {task.id for task in tasks if task.begin_seq >= begin}
    are_others_under_way = any(
        task.begin_seq < begin and (task.end_seq is None or task.end_seq > begin) for task in tasks
    )
    knows_depths = not state.tolerant and not are_others_under_way
    for event in _events(trace, outermost):
        if event.graph_task not in known:
            continue  # it was under way before, or is of no graph task
        what = f"event {event.seq}, {type(event).__name__}"
        if isinstance(event, events.GraphTaskFinished) and not state.tolerant:
            inside = [task for tasks in state.running().values() for task in tasks]
            if any(task.graph_task == event.graph_task for task in inside):
                return f"{what}, can't have happened: a node of it is still running"
        try:
            state.apply(event)
        except ImpossibleEventError as error:
            return f"{what}, can't have happened: {error.why}"
        if isinstance(event, _DROPPING) or not state.knows_all:
            knows_depths = False  # what is left in queues is dropped without a word
        if knows_depths and isinstance(event, events.QueuePush | events.QueuePop):
            length = state.queue_length(event.graph_task, event.queue)
            if length != event.size:
                return f"{what}, tells of {event.size:,} tasks in a queue that has {length:,}"
    return None


def _events(trace: Trace, task: GraphTaskRow) -> Iterator[Event]:
    begin = trace.position(task.begin_seq)
    for offset in range(begin, begin + MOST_EVENTS, _PAGE):
        page = trace.events(offset=offset, limit=_PAGE)
        for event in page:
            if task.end_seq is not None and event.seq > task.end_seq:
                return
            yield event
        if len(page) < _PAGE:
            return
