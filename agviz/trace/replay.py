"""Seeking: the state at any event, without replaying everything that came before it.

Graph tasks that overlap in time (reentrant calls, several calling threads) form an episode; the
engine is idle between episodes, so a replay starts at the beginning of one. On its way it keeps
copies of the state, keyframes, from which later replays start.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from agviz.trace.state import BackwardState, GraphShape
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.trace.rows import GraphTaskRow
    from agviz_engine.events import Event

_EVENTS_BETWEEN_KEYFRAMES: Final = 1_000
_MOST_BYTES: Final = 128 * 2**20


class Replay:
    """Replays a trace to any of its events.

    Args:
        graph_tasks: all of the trace, by id.
        read: yields the events with ``low < seq <= high``, in order.
        shape: gives the graph of a graph task.
        tolerant: whether impossible events are taken as well as can be.
    """

    def __init__(
        self,
        graph_tasks: Sequence[GraphTaskRow],
        read: Callable[[int, int], Iterator[Event]],
        shape: Callable[[int], GraphShape],
        *,
        tolerant: bool,
    ) -> None:
        self._read = read
        self._shape = shape
        self._tolerant = tolerant
        self._episodes = _episodes(graph_tasks)
        self._graph_tasks = {task.id for task in graph_tasks} | {NO_GRAPH_TASK}
        self._keyframes: list[BackwardState] = []
        """In order of ``seq``; each within an episode."""
        self._interval = _EVENTS_BETWEEN_KEYFRAMES
        self._bytes = 0

    def state_at(self, seq: int) -> BackwardState:
        """The state after the event with this ``seq``, for the caller to keep."""
        state = self._start(seq)
        since = 0
        for event in self._read(state.seq, seq):
            if event.graph_task not in self._graph_tasks:
                continue  # it was under way when the recording began
            state.apply(event)
            since += 1
            if since >= self._interval:
                self._keep(state)
                since = 0
        return state

    def _start(self, seq: int) -> BackwardState:
        position = bisect_right(self._episodes, seq) - 1
        begin = self._episodes[position] if position >= 0 else 0
        nearest = bisect_right(self._keyframes, seq, key=attrgetter("seq")) - 1
        if nearest >= 0 and self._keyframes[nearest].seq >= begin:
            return self._keyframes[nearest].copy()
        state = BackwardState(self._shape, tolerant=self._tolerant)
        state.seq = begin - 1
        return state

    def _keep(self, state: BackwardState) -> None:
        frames = self._keyframes
        position = bisect_right(frames, state.seq, key=attrgetter("seq"))
        if position and frames[position - 1].seq == state.seq:
            return
        frames.insert(position, state.copy())
        self._bytes += state.size
        if self._bytes > _MOST_BYTES:
            del frames[::2]
            self._interval *= 2
            self._bytes = sum(frame.size for frame in frames)


def _episodes(graph_tasks: Sequence[GraphTaskRow]) -> list[int]:
    """``seq`` of the event with which each episode begins."""
    begins = []
    busy_until: float = -1
    for task in sorted(graph_tasks, key=attrgetter("begin_seq")):
        if task.begin_seq > busy_until:
            begins.append(task.begin_seq)
        end = float("inf") if task.end_seq is None else task.end_seq
        busy_until = max(busy_until, end)
    return begins
