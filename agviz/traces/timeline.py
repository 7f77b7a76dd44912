"""Timeline: the engine's state at any moment of a file, and what went up and down meanwhile.

Graph tasks that overlap in time (reentrant calls, several calling threads) form an episode; the
engine is idle between episodes. Of each graph task that a state covers, :class:`Intervals` are read
once: from the table ``timeline`` where the recording was closed, else from the events, on from
where they ended the last time.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from agviz.traces.engine_state import EngineState, QueueReplay
from agviz.traces.graph_tasks import FACTS
from agviz.traces.intervals import (
    NEVER,
    NO_DECREMENT,
    NO_NUMBER,
    Intervals,
    TaskSpan,
)
from agviz.traces.schema import (
    ARRIVED,
    AT,
    COMPUTED,
    DELIVERED,
    ENDS,
    FINDING,
    MOVES,
    NBYTES,
    PART_BYTES,
    PARTS,
    POPPED,
    PUSHED,
    SLOT,
    STARTED,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agviz.traces.database import Database
    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.intervals import Arrival
    from agviz.traces.rows import GraphTaskRow

_ROWS_PER_QUERY: Final = 4_000
_NODES_KEPT: Final = 50_000
"""Graph tasks with fewer nodes in all are kept, however many they are."""

_SPAN: Final = (
    *("id", "parent", "depth", "thread", "begin_seq", "begin_t", "end_seq", "end_t", "error"),
    *("nodes", "withdrawn"),
)
_NODES: Final = (
    f"SELECT idx, ifnull(sequence_nr, {NO_NUMBER}), dependencies, recorded FROM node"  # noqa: S608
    " WHERE graph_task = ? ORDER BY idx"
)
_OF_BUFFERS: Final = (ARRIVED, DELIVERED, *ENDS)
_ARRIVES: Final = f"kind IN {(ARRIVED, DELIVERED)}"
_FOUND: Final = f"(kind = {COMPUTED} OR {FINDING})"
_MOVE: Final = "seq, t, thread, kind, ifnull(node, -1), ifnull(a, -1)"
_ARRIVAL: Final = (
    f"seq, ifnull(node, -1), iif(kind = {DELIVERED}, ifnull(b, 0), {NO_DECREMENT}),"
    f" max(ifnull({SLOT}, 0), 0),"
    f" iif(kind = {DELIVERED}, ifnull({NBYTES}, -1), max(ifnull({NBYTES}, 0), 0))"
)
_FINDING: Final = "seq, kind, ifnull(node, -1)"
_FEW_EVENTS: Final = 256
"""Of a graph task of so few, readers work out in 0.5 ms what they would unpack in 0.2 ms, and to
store it would take most of the time in which a run of small steps is closed."""


class Steps(NamedTuple):
    """The time of a graph task in steps of equal length, as numbers of its file."""

    first_seq: int
    last_seq: int
    begin_t: int
    length: int
    """In ns, 1 or more."""
    number: int

    @classmethod
    def of(cls, task: GraphTaskRow, start_ns: int, end_ns: int, count: int) -> Steps:
        """``count`` steps from the begin of ``task`` to ``end_ns``; ``start_ns``: meta's."""
        last_seq = NEVER if task.end_seq is None else task.end_seq
        length = max(1, end_ns - task.begin_ns)
        return cls(task.begin_seq, last_seq, task.begin_ns - start_ns, length, count)

    def around(self, t: int) -> tuple[int, int, int]:
        """The step that a time is in, where it begins and where the next one does.

        The first step reaches back and the last one on without end.
        """
        step = min(max((t - self.begin_t) * self.number // self.length, 0), self.number - 1)
        low, high = (self.begin_t - -edge * self.length // self.number for edge in (step, step + 1))
        return step, low if step else -NEVER, high if step + 1 < self.number else NEVER


class Depth(NamedTuple):
    """One queue in one step, as far as one graph task put into it or took out of it."""

    graph_task: int
    queue: int
    """Device index; -1: the queue of the thread that called backward."""
    step: int
    largest: int
    """Tasks in the queue."""
    last: int


class Bytes(NamedTuple):
    """Live gradient bytes in one step in which they changed."""

    step: int
    largest: int
    last: int


class LiveBytes(NamedTuple):
    """The gradients in all InputBuffers after a change of them."""

    seq: int
    t: int
    """Time since the start of the recording."""
    total: int
    """Bytes."""


class Spans:
    """When the graph tasks of a file were under way.

    Args:
        tasks: all of them.
    """

    def __init__(self, tasks: GraphTasks) -> None:
        self._tasks = tasks
        self._columns = [tasks.column(FACTS.index(name)) for name in _SPAN]
        begins, ends = tasks.begin_seqs, tasks.end_seqs
        self._places = sorted(range(len(tasks)), key=begins.__getitem__)
        self._begins = array("q", map(begins.__getitem__, self._places))
        self._first = array("q")
        """By place: where the episode begins."""
        self._known: tuple[int, dict[int, tuple[TaskSpan, TaskSpan]]] = 0, {}
        busy_until = -1
        for number, (place, begin) in enumerate(zip(self._places, self._begins, strict=True)):
            is_inside = bool(self._first) and begin <= busy_until
            self._first.append(self._first[-1] if is_inside else number)
            end = ends[place]
            busy_until = max(busy_until, NEVER if end < 0 else end)

    def of(self, graph_task: int) -> TaskSpan | None:
        """Of one of them; None: there is none of this number."""
        place = self._tasks.place(graph_task)
        return None if place is None else self._span(place)

    def __iter__(self) -> Iterator[TaskSpan]:
        return map(self._span, range(len(self._tasks)))

    def _span(self, place: int) -> TaskSpan:
        values = [column[place] for column in self._columns]
        number, parent, depth, thread, begin_seq, begin_t, end_seq, end_t, error, *rest = values
        nodes, withdrawn = rest
        return TaskSpan(
            *(number, parent, depth, thread, begin_seq, begin_t),
            NEVER if end_seq < 0 else end_seq,
            max(end_t, 0),
            NEVER if end_seq < 0 or error else end_seq,
            nodes,
            NEVER if withdrawn < 0 else withdrawn,
        )

    def known(self, seq: int) -> dict[int, tuple[TaskSpan, TaskSpan]]:
        """The graph tasks that a state covers, with the outermost of each, by id."""
        count = bisect_right(self._begins, seq)
        if self._known[0] != count:
            self._known = count, self._known_after(count)
        return self._known[1]

    def _known_after(self, count: int) -> dict[int, tuple[TaskSpan, TaskSpan]]:
        begun = [*map(self._span_at, range(self._first[count - 1], count))] if count else []
        roots: dict[int, TaskSpan] = {}
        last: dict[int, int] = {}
        """Begin of the last outermost graph task that each thread called."""
        for span in begun:
            root = roots[span.id] = roots.get(span.parent, span)
            if root is span:
                last[span.thread] = span.begin_seq
        return {
            span.id: (span, root)
            for span in sorted(begun)
            if (root := roots[span.id]).end_seq >= last[root.thread]
        }

    def next_begin(self, seq: int) -> int:
        """``seq`` of the next GraphTaskBegun behind an event."""
        count = bisect_right(self._begins, seq)
        return self._begins[count] if count < len(self._begins) else NEVER

    def episodes(self, first: int, last: int) -> Iterator[list[TaskSpan]]:
        """The graph tasks that were under way between two events, by episode."""
        places = range(bisect_right(self._begins, last))
        for _, episode in groupby(places, self._first.__getitem__):
            found = [each for each in map(self._span_at, episode) if each.end_seq >= first]
            if found:
                yield found

    def _span_at(self, place: int) -> TaskSpan:
        return self._span(self._places[place])


class Timeline:
    """The moments of a file; one that grows is read on.

    Args:
        database: the file.
        graph_tasks: gives those that are in it now.
        is_closed: whether the recording was closed.
    """

    def __init__(
        self, database: Database, graph_tasks: Callable[[], GraphTasks], *, is_closed: bool
    ) -> None:
        self._database = database
        self._graph_tasks = graph_tasks
        self.is_closed = is_closed
        self._until = NEVER if is_closed else -1
        """The last event that is known of."""
        self._spans = Spans(graph_tasks() if is_closed else graph_tasks()[:0])
        self._tasks: dict[int, Intervals] = {}
        """In order of their last use."""
        self._nodes = 0
        """Number of their nodes."""
        self._replays: dict[int, QueueReplay] = {}
        self._episode = -1
        """Which the replays are of."""

    def state_at(self, seq: int, time_ns: int) -> EngineState:
        """The state right after an event.

        Args:
            seq: of the event.
            time_ns: its time.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        self._look(seq)
        known = self._spans.known(seq)
        tasks = self._columns([span for span, _ in known.values()])
        episode = min((span.begin_seq for span, _ in known.values()), default=-1)
        if episode != self._episode:
            self._replays, self._episode = {}, episode
        return EngineState(
            seq,
            time_ns,
            {number: (tasks[number], tasks[root.id]) for number, (_, root) in known.items()},
            self._replays,
            self._spans.next_begin(seq),
        )

    def live_changes(self, first: int, last: int) -> Iterator[LiveBytes]:
        """Live bytes whenever they change between two events, and at first if there are any."""
        self._look(last)
        for episode in self._spans.episodes(first, last):
            tasks = self._columns(episode)
            live = {number: task.live_bytes(first - 1) for number, task in tasks.items()}
            sum_of_all = sum(live.values())
            if sum_of_all:
                yield LiveBytes(first - 1, 0, sum_of_all)
            times = self._times(episode, first, last)
            each = (
                zip(repeat(number), task.live_changes(first, last), strict=False)
                for number, task in tasks.items()
            )
            for number, (seq, total) in heapq.merge(*each, key=itemgetter(1)):
                sum_of_all += total - live[number]
                live[number] = total
                yield LiveBytes(seq, times.get(seq, 0), sum_of_all)
            for number in tasks:
                self._forget(number)

    def _times(self, episode: Sequence[TaskSpan], first: int, last: int) -> dict[int, int]:
        """When gradients arrived and left between two events, by ``seq``."""
        rows = self._database.integers(
            f"SELECT {AT}, t FROM event WHERE seq BETWEEN ? AND ? AND kind IN {_OF_BUFFERS}",  # noqa: S608
            max(first - 1, min(span.begin_seq for span in episode)),
            min(last, max(span.last_seq for span in episode)),
        )
        return {span.end_seq: span.end_t for span in episode} | dict(
            cast("list[tuple[int, int]]", rows)
        )

    def _look(self, seq: int) -> None:
        """Look what there is more where an event is not known yet."""
        if not self.is_closed and seq > self._until:
            rows = self._database.integers(f"SELECT {AT} FROM event ORDER BY seq DESC LIMIT 1")  # noqa: S608
            self._until = rows[0][0] if rows else -1
            self._spans = Spans(self._graph_tasks())

    def of(self, graph_task: int) -> Intervals | None:
        """What happened to the nodes of a graph task; None: there is none of this number."""
        span = self._spans.of(graph_task)
        return None if span is None else self._columns([span])[graph_task]

    def to_store(
        self, lasts: Mapping[int, int], moments: Callable[[int], Iterable[Sequence[int | None]]]
    ) -> Iterator[tuple[int, bytes]]:
        """Rows for the table ``timeline``.

        Args:
            lasts: ``seq`` of the last event of each graph task.
            moments: gives :class:`Moments` of its nodes, in any order.
        """
        for span in self._spans:
            number = span.id
            last = lasts.get(number, span.begin_seq)
            task = Intervals(span, self._database.damaged)
            if span.nodes and last - span.begin_seq >= _FEW_EVENTS:
                self._describe(task)
                task.fill(moments(number))
                self._read_arrivals(task, last)
                blob = task.pack()
                for part, begin in enumerate(range(0, len(blob), PART_BYTES)):
                    yield number * PARTS + part, blob[begin : begin + PART_BYTES]

    def _columns(self, spans: Sequence[TaskSpan]) -> dict[int, Intervals]:
        """What happened to the nodes of some graph tasks, by id."""
        tasks = {}
        for span in spans:
            task = self._forget(span.id) or self._stored(span)
            task.span = span
            last = min(self._until, span.last_seq)
            if task.until < last:
                self._follow(task, last)
            tasks[span.id] = task
        self._tasks |= tasks
        self._nodes += sum(task.size for task in tasks.values())
        while self._nodes > _NODES_KEPT and len(self._tasks) > len(tasks):
            self._forget(next(iter(self._tasks)))  # what was not asked for lately
        return tasks

    def _forget(self, graph_task: int) -> Intervals | None:
        """What is known of a graph task, which is known no longer."""
        task = self._tasks.pop(graph_task, None)
        if task is not None:
            self._nodes -= task.size
        return task

    def _stored(self, span: TaskSpan) -> Intervals:
        """Those of a recording that was closed; else nothing has happened yet."""
        blob = b""
        if self.is_closed:
            blob = self._database.joined("timeline", span.id * PARTS, span.id * PARTS + PARTS)
        if not blob:
            return Intervals(span, self._database.damaged)
        return Intervals.unpack(span, blob, self._database.damaged)

    def _describe(self, task: Intervals) -> None:
        rows = self._database.integers(_NODES, task.span.id)
        indexes, *columns = zip(*rows, strict=True) if rows else ((), *[()] * 3)
        if indexes != tuple(range(len(indexes))):
            raise self._database.damaged("a node is missing")
        task.describe(columns)

    def _follow(self, task: Intervals, last: int) -> None:
        """Read on what happened to nodes, and what arrived at them, from the events."""
        if task.span.nodes and not task.size:
            self._describe(task)
        for moves in self._events(_MOVE, f"kind IN {MOVES}", task, last):
            for move in moves:
                task.happened(*move)
        self._read_arrivals(task, last)
        task.until = last

    def _read_arrivals(self, task: Intervals, last: int) -> None:
        for rows in self._events(_ARRIVAL, _ARRIVES, task, last):
            task.arrive(cast("list[Arrival]", rows), rows[-1][0])
        task.arrive((), last)
        for rows in self._events(_FINDING, _FOUND, task, last):
            for seq, kind, node in rows:
                if kind == COMPUTED:
                    task.computed = seq
                else:
                    task.nonfinite.setdefault(node, seq)

    def _events(
        self, columns: str, condition: str, task: Intervals, last: int
    ) -> Iterator[list[tuple[int, ...]]]:
        """The events of a graph task that were not read yet, some at a time."""
        low, are_more = task.until, True
        while are_more:
            rows = self._database.integers(
                f"SELECT {columns} FROM event WHERE +graph_task = ? AND seq > ? AND seq <= ?"  # noqa: S608 - our words
                f" AND {condition} ORDER BY seq LIMIT ?",
                *(task.span.id, low, last, _ROWS_PER_QUERY),
            )
            if rows:
                low = rows[-1][0]
                yield rows
            are_more = len(rows) == _ROWS_PER_QUERY


def live_bytes(changes: Iterable[LiveBytes], steps: Steps) -> Iterator[Bytes]:
    """Live bytes in order of time; ``changes``: those during the steps."""
    step, low, high = steps.around(steps.begin_t)
    largest = live = 0
    changed = False
    for seq, t, now in changes:
        if seq < steps.first_seq:
            largest = now
        elif not low <= t < high:
            if changed:
                yield Bytes(step, largest, live)
            step, low, high = steps.around(t)
            largest = now
        elif now > largest or not changed:
            largest = now
        live, changed = now, True
    if changed:
        yield Bytes(step, largest, live)


def depths(database: Database, steps: Steps) -> list[Depth]:
    """Depths in order of the last event of each. Raises TraceError where the file is damaged."""
    rows = database.integers(
        "SELECT of_step.graph_task, queue, step, largest, event.b FROM (SELECT graph_task,"  # noqa: S608 - numbers
        " a AS queue, min(max((t - ?) * ? / ?, 0), ?) AS step, max(b) AS largest, max(seq) AS last"
        f" FROM event WHERE kind IN {(PUSHED, POPPED, STARTED)} AND seq BETWEEN ? AND ?"
        " GROUP BY graph_task, queue, step) AS of_step JOIN event ON event.seq = last"
        " ORDER BY last",
        steps.begin_t,
        steps.number,
        steps.length,
        steps.number - 1,
        steps.first_seq,
        steps.last_seq,
    )
    return list(map(Depth._make, rows))
