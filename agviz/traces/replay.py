"""Seeking: the state at any event, without replaying everything that came before it.

Graph tasks that overlap in time (reentrant calls, several calling threads) form an episode; the
engine is idle between episodes, so a replay starts at the beginning of one, at a keyframe within it
(Note [Keyframes]), or at the state that was asked for last, whichever is nearest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.nodes import undisturbed
from agviz.traces.state import BackwardState, GraphShape
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.pages import Pages
    from agviz_engine.events import Event

_EVENTS_PER_KEYFRAME: Final = 512
_BYTES_PER_EVENT: Final = 8
"""Keyframes take at most this much of a file; where they are large, they stand further apart."""
_MOST_BYTES: Final = 64 * 2**20
"""Of keyframes in memory."""
_NEVER: Final = 2**63 - 1
_EVENTS_PER_STEP: Final = 256
"""So far ahead of the last state, a state is found from that one."""


class Keyframe(NamedTuple):
    """A packed state."""

    seq: int
    """Of the last event applied."""
    state: bytes


class Span(NamedTuple):
    """When a graph task was under way."""

    id: int
    depth: int
    """Of how many calls of backward it was inside."""
    begin_seq: int
    end_seq: int | None
    """None: it did not end."""


class Replay:
    """Replays a trace to any of its events.

    Args:
        graph_tasks: all of the trace, by id.
        read: yields the events with ``low < seq <= high``, in order.
        shape: gives the graph of a graph task.
        late: ``seq`` of the last event of graph tasks that have some behind their end.
        stored: the last keyframe of the file that is not after an event.
        tolerant: whether impossible events are taken as well as can be.
    """

    def __init__(
        self,
        graph_tasks: Sequence[Span],
        read: Callable[[int, int], Iterator[Event]],
        shape: Callable[[int], GraphShape],
        late: Mapping[int, int],
        stored: Callable[[int], Keyframe | None],
        *,
        tolerant: bool,
    ) -> None:
        self._read = read
        self._stored = stored
        self._idle = BackwardState(shape, tolerant=tolerant)
        self._episodes = _episodes(graph_tasks, late)
        self._alone = cache(partial(_alone, graph_tasks, late))
        self._graph_tasks = {task.id for task in graph_tasks} | {NO_GRAPH_TASK}
        self._made: list[Keyframe] = []
        """In order of ``seq``."""
        self._bytes = 0
        self._interval = _EVENTS_PER_KEYFRAME
        self._last = self._idle

    @classmethod
    def of(cls, contents: Contents, pages: Pages, former: Replay | None = None) -> Replay:
        """The replay of a file, as it is at this moment.

        Args:
            contents: of the file.
            pages: its events.
            former: the replay of the same file when it was shorter; what it made is used further.
        """
        meta = contents.meta
        found = cls(
            contents.spans(),
            pages.between,
            contents.shape,
            pages.late,
            contents.keyframe,
            tolerant=meta.end_ns is None or meta.partial or bool(meta.stopped),
        )
        if former is not None:
            found._made, found._bytes = former._made, former._bytes
            found._interval = former._interval
        return found

    def state_at(self, seq: int) -> BackwardState:
        """The state after the event with this ``seq``, for the caller to keep.

        Raises:
            agviz.traces.state.ImpossibleEventError: an event on the way can't have happened.
            ValueError: a stored keyframe is none.
        """
        with undisturbed():
            state, left = self._start(seq)
            self._last = self._idle  # until nothing can go wrong any more
            for keyframe in self._go(state, seq, left):
                self._keep(keyframe)
            self._last = state
            return state.copy()

    def keyframes(self) -> Iterator[Keyframe]:
        """Those with which any event is found quickly. Raises as :meth:`state_at` does."""
        for begin, end in self._episodes:
            if end - begin > self._interval:
                yield from self._go(self._idle_before(begin), end, self._interval)

    def _go(self, state: BackwardState, seq: int, left: int) -> Iterator[Keyframe]:
        """Move ``state`` on to ``seq``; gives a keyframe after ``left`` events, and so on."""
        for event in self._read(state.seq, seq):
            if event[3] not in self._graph_tasks:
                continue  # it was under way when the recording began
            state.apply(event)
            left -= 1
            if not left:
                packed = state.pack(self._alone())
                left = self._distance(packed)
                yield Keyframe(event[0], packed)

    def _distance(self, packed: bytes) -> int:
        return max(self._interval, len(packed) // _BYTES_PER_EVENT)

    def _start(self, seq: int) -> tuple[BackwardState, int]:
        """The nearest known state that is not after ``seq``; events until the next keyframe."""
        position = bisect_right(self._episodes, (seq, _NEVER)) - 1
        begin = self._episodes[position][0] if position >= 0 else 0
        last = self._last
        usable = begin <= last.seq <= seq
        if usable and seq <= last.seq + _EVENTS_PER_STEP:
            return last, self._interval
        keyframe = self._nearest(seq)
        if usable and (keyframe is None or keyframe.seq <= last.seq):
            return last, self._interval if keyframe is None else self._distance(keyframe.state)
        if keyframe is None or keyframe.seq < begin:
            return self._idle_before(begin), self._interval
        state = self._idle.unpack(keyframe.state)
        if state.seq != keyframe.seq:
            raise ValueError("a keyframe is of another event")
        return state, self._distance(keyframe.state)

    def _idle_before(self, begin: int) -> BackwardState:
        state = self._idle.copy()
        state.skip_to(begin - 1)
        return state

    def _nearest(self, seq: int) -> Keyframe | None:
        position = bisect_right(self._made, seq, key=attrgetter("seq")) - 1
        made = self._made[position] if position >= 0 else None
        stored = self._stored(seq)
        if made is None or stored is None:
            return made or stored
        return max(made, stored)

    def _keep(self, keyframe: Keyframe) -> None:
        frames = self._made
        position = bisect_right(frames, keyframe.seq, key=attrgetter("seq"))
        if position and frames[position - 1].seq == keyframe.seq:
            return
        frames.insert(position, keyframe)
        self._bytes += len(keyframe.state)
        if self._bytes > _MOST_BYTES:
            del frames[::2]
            self._interval *= 2
            self._bytes = sum(len(frame.state) for frame in frames)


def _episodes(graph_tasks: Sequence[Span], late: Mapping[int, int]) -> list[tuple[int, int]]:
    """``seq`` of the first and the last event of each episode."""
    episodes: list[tuple[int, int]] = []
    for task in sorted(graph_tasks, key=attrgetter("begin_seq")):
        end = _last(task, late)
        if episodes and task.begin_seq <= episodes[-1][1]:
            begin, busy_until = episodes.pop()
            episodes.append((begin, max(busy_until, end)))
        else:
            episodes.append((task.begin_seq, end))
    return episodes


def _alone(graph_tasks: Sequence[Span], late: Mapping[int, int]) -> frozenset[int]:
    """Graph tasks during which no other of the same depth is ever under way."""
    by_depth: dict[int, list[Span]] = {}
    for task in graph_tasks:
        by_depth.setdefault(task.depth, []).append(task)
    found: set[int] = set()
    for tasks in by_depth.values():
        begins = [begin for begin, _ in _episodes(tasks, late)]
        places = [bisect_right(begins, task.begin_seq) for task in tasks]
        counts = Counter(places)
        found.update(
            task.id
            for task, place in zip(tasks, places, strict=True)
            if counts[place] == 1 and task.end_seq is not None
        )
    return frozenset(found)


def _last(task: Span, late: Mapping[int, int]) -> int:
    return _NEVER if task.end_seq is None else max(task.end_seq, late.get(task.id, -1))
