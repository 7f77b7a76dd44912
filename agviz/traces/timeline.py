"""Timeline: the engine's state at any moment of a file, and what went up and down meanwhile.

Graph tasks that overlap in time (reentrant calls, several calling threads) form an episode; the
engine is idle between episodes. Of each graph task that a state covers, :class:`Intervals` are read
once: from the table ``timeline`` and the arrivals among the events where the recording was closed,
else from the events, on from where they ended the last time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.traces.engine_state import EngineState, QueueReplay
from agviz.traces.intervals import (
    DECREMENT,
    NEVER,
    NO_ARRIVAL,
    NO_NUMBER,
    Intervals,
    TaskSpan,
)
from agviz.traces.schema import (
    ARRIVED,
    AT,
    CHECKED,
    COMPUTED,
    DELIVERED,
    MOVES,
    NBYTES,
    POPPED,
    PUSHED,
    SLOT,
    STARTED,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agviz.traces.database import Database
    from agviz.traces.intervals import Arrival
    from agviz.traces.rows import GraphTaskRow

_ROWS_PER_QUERY: Final = 4_000
_NODES_KEPT: Final = 50_000
"""Graph tasks with fewer nodes in all are kept, however many they are."""

_SPAN: Final = (
    f"SELECT id, parent, depth, thread, begin_seq, ifnull(end_seq, {NEVER}), ifnull(end_t, 0),"  # noqa: S608 - numbers
    f" CASE WHEN end_seq IS NULL OR error <> 0 THEN {NEVER} ELSE end_seq END, nodes"
    " FROM graph_task"
)
_NODE: Final = f"ifnull(sequence_nr, {NO_NUMBER}), dependencies, recorded"
_FILLED: Final = ", ".join(
    f"ifnull({column}, {NEVER})" for column in ("pushed", "popped", "started", "ended")
)
_WITH_TIMES: Final = (
    f"SELECT node.graph_task, idx, {_NODE}, {_FILLED}, ifnull(outcome, 0),"  # noqa: S608 - our words
    f" ifnull(failed, {NEVER}), ifnull(timeline.queue, -1), ifnull(thread, -1), ifnull(end_t, 0)"
    " FROM node LEFT JOIN timeline"
    " ON timeline.graph_task = node.graph_task AND timeline.node = node.idx"
    " WHERE node.graph_task BETWEEN ? AND ?"
    " ORDER BY node.graph_task, idx"
)
_NODES: Final = f"SELECT idx, {_NODE} FROM node WHERE graph_task = ? ORDER BY idx"  # noqa: S608
_LAST: Final = f"SELECT ifnull(max(seq), {NEVER}) FROM anchor WHERE graph_task = ?"  # noqa: S608
_FINDING: Final = f"(kind = {CHECKED} AND b + c + d > 0)"
_ARRIVES: Final = f"(kind IN {(COMPUTED, ARRIVED, DELIVERED)} OR {_FINDING})"
_MOVE: Final = "seq, t, thread, kind, ifnull(node, -1), ifnull(a, -1)"
_ARRIVAL: Final = (
    f"seq, t, kind, ifnull(node, -1), ifnull(b, 0), max(ifnull({SLOT}, 0), 0), ifnull({NBYTES}, -1)"
)


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
        spans: of all of them.
    """

    def __init__(self, spans: Iterable[TaskSpan]) -> None:
        self._spans = sorted(spans, key=attrgetter("begin_seq"))
        self._begins = [span.begin_seq for span in self._spans]
        self._first: list[int] = []
        """By place: where the episode begins."""
        self._known: tuple[int, dict[int, tuple[TaskSpan, TaskSpan]]] = 0, {}
        busy_until = -1
        for number, span in enumerate(self._spans):
            is_inside = span.begin_seq <= busy_until
            self._first.append(self._first[-1] if is_inside else number)
            busy_until = max(busy_until, span.end_seq)

    def __iter__(self) -> Iterator[TaskSpan]:
        return iter(self._spans)

    def known(self, seq: int) -> dict[int, tuple[TaskSpan, TaskSpan]]:
        """The graph tasks that a state covers, with the outermost of each, by id."""
        count = bisect_right(self._begins, seq)
        if self._known[0] != count:
            self._known = count, self._known_after(count)
        return self._known[1]

    def _known_after(self, count: int) -> dict[int, tuple[TaskSpan, TaskSpan]]:
        begun = self._spans[self._first[count - 1] : count] if count else []
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
        numbered = enumerate(self._spans[: bisect_right(self._begins, last)])
        for _, episode in groupby(numbered, lambda each: self._first[each[0]]):
            found = [span for _, span in episode if span.end_seq >= first]
            if found:
                yield found


class Timeline:
    """The moments of a file; one that grows is read on.

    Args:
        database: the file.
        is_closed: whether the recording was closed.
    """

    def __init__(self, database: Database, *, is_closed: bool) -> None:
        self._database = database
        self.is_closed = is_closed
        self._until = NEVER if is_closed else -1
        """The last event that is known of."""
        self._spans = Spans(self._read_spans() if is_closed else ())
        self._tasks: dict[int, Intervals] = {}
        """In order of their last use."""
        self._replays: dict[int, QueueReplay] = {}
        self._episode = -1
        """Which the replays are of."""

    def state_at(self, seq: int, time_ns: int, graph_task: int) -> EngineState:
        """The state right after an event.

        Args:
            seq: of the event.
            time_ns: its time.
            graph_task: about whose nodes everything will be asked, beside those under way.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        self._look(seq)
        known = self._spans.known(seq)
        tasks = self._columns([span for span, _ in known.values()])
        self._arrivals(
            task
            for number, task in tasks.items()
            if seq < task.span.end_seq or number == graph_task
        )
        episode = min((span.begin_seq for span, _ in known.values()), default=-1)
        if episode != self._episode:
            self._replays, self._episode = {}, episode
        return EngineState(
            seq,
            time_ns,
            {number: (tasks[number], tasks[root.id]) for number, (_, root) in known.items()},
            self._with_arrivals,
            self._replays,
            self._spans.next_begin(seq),
        )

    def live_changes(self, first: int, last: int) -> Iterator[LiveBytes]:
        """Live bytes whenever they change between two events, and at first if there are any."""
        self._look(last)
        for episode in self._spans.episodes(first, last):
            tasks = list(self._columns(episode).values())
            self._arrivals(tasks)
            total = sum(task.live_bytes(first - 1) for task in tasks)
            if total:
                yield LiveBytes(first - 1, 0, total)
            for seq, t, by in heapq.merge(*(task.live_changes(first, last) for task in tasks)):
                total += by
                yield LiveBytes(seq, t, total)
            for task in tasks:
                self._tasks.pop(task.span.id, None)

    def _look(self, seq: int) -> None:
        """Look what there is more where an event is not known yet."""
        if not self.is_closed and seq > self._until:
            rows = self._database.integers(f"SELECT {AT} FROM event ORDER BY seq DESC LIMIT 1")  # noqa: S608
            self._until = rows[0][0] if rows else -1
            self._spans = Spans(self._read_spans())

    def _read_spans(self) -> Iterator[TaskSpan]:
        return map(TaskSpan._make, self._database.integers(_SPAN))

    def _with_arrivals(self, graph_task: int) -> Intervals:
        (span,) = (span for span in self._spans if span.id == graph_task)
        task = self._columns([span])[graph_task]
        self._arrivals([task])
        return task

    def _columns(self, spans: Sequence[TaskSpan]) -> dict[int, Intervals]:
        """What happened to the nodes of some graph tasks, by id."""
        tasks = {}
        for span in spans:
            task = tasks[span.id] = self._tasks.pop(span.id, Intervals(span))
            task.span = span
        missing = [
            task for task in tasks.values() if task.until < min(self._until, task.span.last_seq)
        ]
        if missing:
            missing.sort(key=lambda task: task.span.id)
            if self.is_closed:
                self._fill(missing)
            else:
                self._follow(missing)
        self._tasks |= tasks
        if missing:
            self._let_go_of(len(tasks))
        return tasks

    def _let_go_of(self, kept: int) -> None:
        """Drop what was not asked for lately, but for as many as were asked for now."""
        nodes = sum(task.size for task in self._tasks.values())
        while nodes > _NODES_KEPT and len(self._tasks) > kept:
            nodes -= self._tasks.pop(next(iter(self._tasks))).size

    def _fill(self, tasks: Sequence[Intervals]) -> None:
        """Read what happened to nodes from a recording that was closed."""
        by_id = {task.span.id: task for task in tasks}
        for first, last in _runs(list(by_id)):
            rows = self._database.integers(_WITH_TIMES, first, last)
            for number, own in groupby(rows, itemgetter(0)):
                _, indexes, *columns = zip(*own, strict=True)
                self._check(indexes)
                by_id[number].describe(columns[:3])
                by_id[number].fill(columns[3:])
        for task in tasks:
            task.until = NEVER

    def _check(self, indexes: Sequence[int]) -> None:
        if indexes != tuple(range(len(indexes))):
            raise self._database.damaged("a node is missing")

    def _arrivals(self, tasks: Iterable[Intervals]) -> None:
        """Read what arrived at the nodes of graph tasks; of a file that grows, it was read."""
        for task in tasks:
            if self.is_closed and task.arrivals_until != NEVER:
                self._read_arrivals(task, self._database.value(_LAST, task.span.id))
                task.arrivals_until = NEVER

    def _follow(self, tasks: Sequence[Intervals]) -> None:
        """Read on what happened to nodes, and what arrived at them, from the events."""
        for task in tasks:
            if task.span.nodes and not task.size:
                rows = self._database.integers(_NODES, task.span.id)
                indexes, *columns = zip(*rows, strict=True) if rows else ((), *[()] * 3)
                self._check(indexes)
                task.describe(columns)
            last = min(self._until, task.span.last_seq)
            for moves in self._events(_MOVE, f"kind IN {MOVES}", task, last):
                for move in moves:
                    self._take(task.happened, *move)
            self._read_arrivals(task, last)
            task.until = last

    def _read_arrivals(self, task: Intervals, last: int) -> None:
        for rows in self._events(_ARRIVAL, _ARRIVES, task, last):
            arrivals = list(_arrivals(rows))
            self._take(task.arrive, arrivals, arrivals[-1][0])
        task.arrive((), last)

    def _take(self, take: Callable[..., None], *arguments: Any) -> None:
        try:
            take(*arguments)
        except IndexError as error:
            raise self._database.damaged("an event concerns a node that is not there") from error

    def _events(
        self, columns: str, condition: str, task: Intervals, last: int
    ) -> Iterator[list[tuple[int, ...]]]:
        """The events of a graph task that were not read yet, some at a time."""
        low = task.arrivals_until
        while rows := self._database.integers(
            f"SELECT {columns} FROM event WHERE +graph_task = ? AND seq > ? AND seq <= ?"  # noqa: S608 - our words
            f" AND {condition} ORDER BY seq LIMIT ?",
            *(task.span.id, low, last, _ROWS_PER_QUERY),
        ):
            low = rows[-1][0]
            yield rows


def _arrivals(rows: Iterable[tuple[int, ...]]) -> Iterator[Arrival]:
    """What rows of :data:`_ARRIVAL` say of nodes, in order of ``seq``."""
    for seq, t, kind, node, b, slot, nbytes in rows:
        if kind == DELIVERED:
            yield seq, t, node, DECREMENT, b
            if nbytes >= 0:
                yield seq + 1, t, node, slot, nbytes
        elif kind == ARRIVED:
            yield seq, t, node, slot, max(nbytes, 0)
        else:
            yield seq, t, node, NO_ARRIVAL, b


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of numbers that follow each other; they ascend."""
    for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        found = [number for _, number in run]
        yield found[0], found[-1]


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
