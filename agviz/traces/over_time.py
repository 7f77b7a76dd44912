"""Depths of queues and live gradient bytes during a graph task, without replaying its events.

A queue's depth stands in the events themselves, so SQLite finds it; live bytes need the events that
fill and empty InputBuffers, as numbers. Both agree with :class:`~agviz.traces.state.BackwardState`
wherever the events can have happened; where they can't, numbers are false but nothing is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces import codec
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from agviz.traces.database import Database
    from agviz.traces.rows import GraphTaskRow
    from agviz.traces.state import BackwardState

_ROWS_PER_QUERY: Final = 2_000
_NOTHING: Final[dict[int, int]] = {}
_NEVER: Final = 2**63 - 1
_ACCUMULATED: Final = codec.KIND[events.GradientAccumulated]
_LEFT: Final = frozenset(
    codec.KIND[kind] for kind in (events.NodeFinished, events.NodeFailed, events.NodeSkipped)
)
_QUEUE: Final = (codec.KIND[events.QueuePush], codec.KIND[events.QueuePop])
_BUFFER: Final = (
    *_LEFT,
    _ACCUMULATED,
    codec.KIND[events.GraphTaskFinished],
    codec.KIND[events.GraphTaskFailed],
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
        last_seq = _NEVER if task.end_seq is None else task.end_seq
        length = max(1, end_ns - task.begin_ns)
        return cls(task.begin_seq, last_seq, task.begin_ns - start_ns, length, count)

    def around(self, t: int) -> tuple[int, int, int]:
        """The step that a time is in, where it begins and where the next one does.

        The first step reaches back and the last one on without end.
        """
        step = min(max((t - self.begin_t) * self.number // self.length, 0), self.number - 1)
        low, high = (
            self.begin_t - -place * self.length // self.number for place in (step, step + 1)
        )
        return step, low if step else -_NEVER, high if step + 1 < self.number else _NEVER


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


def depths(database: Database, steps: Steps) -> list[Depth]:
    """Depths in order of the last event of each. Raises TraceError where the file is damaged."""
    rows = database.integers(
        "SELECT of_step.graph_task, queue, step, largest, event.b FROM (SELECT graph_task,"  # noqa: S608 - numbers
        " a AS queue, min(max((t - ?) * ? / ?, 0), ?) AS step, max(b) AS largest, max(seq) AS last"
        f" FROM event WHERE kind IN {_QUEUE} AND seq BETWEEN ? AND ? GROUP BY graph_task, queue,"
        " step) AS of_step JOIN event ON event.seq = last ORDER BY last",
        steps.begin_t,
        steps.number,
        steps.length,
        steps.number - 1,
        steps.first_seq,
        steps.last_seq,
    )
    return list(map(Depth._make, rows))


def live_bytes(
    database: Database,
    steps: Steps,
    state: BackwardState,
    known: Mapping[int, GraphTaskRow],
    left_out: Mapping[int, Collection[int]],
) -> Iterator[Bytes]:
    """Live bytes in order of time.

    Args:
        database: the file.
        steps: the stretch of events that is looked at.
        state: the state before it.
        known: the graph tasks of the file, by id; others were under way when it began.
        left_out: by graph task: nodes of whose events the recording keeps none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    step, low, high = steps.around(steps.begin_t)
    largest = live = state.live_bytes
    changed = live != 0
    for t, now in _totals(database, steps, state, known, left_out):
        if not low <= t < high:
            if changed:
                yield Bytes(step, largest, live)
            step, low, high = steps.around(t)
            largest = now
        elif now > largest or not changed:
            largest = now
        live, changed = now, True
    if changed:
        yield Bytes(step, largest, live)


def _totals(
    database: Database,
    steps: Steps,
    state: BackwardState,
    known: Mapping[int, GraphTaskRow],
    left_out: Mapping[int, Collection[int]],
) -> Iterator[tuple[int, int]]:
    """Times at which live bytes changed, and what they are then."""
    buffers = {
        number: state.buffers(number) if number in state.graph_tasks else {}
        for number, task in known.items()
        if task.end_seq is None or task.end_seq >= steps.first_seq
    }
    live = state.live_bytes
    for rows in _buffer_events(database, steps):
        for t, number, kind, node, slot, nbytes, _ in rows:
            before = live
            held = buffers.get(number)
            if held is None:
                continue  # it was under way when the recording began, or it is over
            if kind == _ACCUMULATED:
                slots = held.get(node)
                if slots is not None:
                    live += nbytes - slots.get(slot, 0)
                    slots[slot] = nbytes
                elif node not in left_out.get(number, ()):
                    live += nbytes
                    held[node] = {slot: nbytes}
            elif kind in _LEFT:
                live -= sum(held.pop(node, _NOTHING).values())
            else:
                live -= sum(sum(slots.values()) for slots in held.values())
                del buffers[number]
            if live != before:
                yield t, live


def _buffer_events(database: Database, steps: Steps) -> Iterator[list[tuple[int, ...]]]:
    """Time, graph task, kind, node, slot, bytes and seq of what changes InputBuffers."""
    low = steps.first_seq
    while True:
        rows = database.integers(
            "SELECT t, graph_task, kind, ifnull(node, -1), ifnull(b, 0), ifnull(d, 0), seq"  # noqa: S608 - numbers
            f" FROM event WHERE kind IN {_BUFFER} AND seq BETWEEN ? AND ? ORDER BY seq LIMIT ?",
            low,
            steps.last_seq,
            _ROWS_PER_QUERY,
        )
        yield rows
        if len(rows) < _ROWS_PER_QUERY:
            return
        low = rows[-1][-1] + 1
