"""Beyond the end of a graph task: where a move of the playhead leads to from there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.tui.model import Playhead
from agviz.tui.passes import marked_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.reader import Trace
    from agviz.tui.model import Beyond
    from agviz.tui.passes import Findings, Order, PassPosition


_NEVER: Final = 2**63 - 1


class Landing(NamedTuple):
    """Where a move goes on."""

    graph_task: int
    position: int
    """Number of its events up to there."""
    move: Callable[[Playhead], None] | None = None
    """What is still to be done there; it may lead on. None: nothing."""
    said: str = ""
    """Why it ends there; empty: as was asked for."""


def onward(trace: Trace, order: Order, graph_task: int, beyond: Beyond) -> Landing | None:
    """Where the next node or event is; None: there is no other graph task.

    Behind a reentrant call comes what the graph task around does then. Backwards, the end of the
    one before is a place of its own.
    """
    place = _next(trace, order, graph_task, beyond.by)
    if place is None:
        return None
    if beyond.by < 0:
        return Landing(*place)
    if beyond.kind == "node":
        return Landing(*place, partial(Playhead.by_nodes, count=beyond.by, thread=beyond.thread))
    return Landing(*place, partial(Playhead.by_events, count=beyond.by))


def to_stop(
    trace: Trace, order: Order, findings: Findings, graph_task: int, beyond: Beyond
) -> Landing | None:
    """Where the next failure or non-finite gradient is that no stop of ``graph_task`` shows.

    Where there is none, the end of the last pass, or the beginning of the first.
    """
    by = 1 if beyond.by > 0 else -1
    root = order.root(graph_task)
    mark = findings.marks.get(root)
    if mark is not None:
        place = marked_place(trace, root, mark)
        is_ahead = place.seq > beyond.seq if by > 0 else place.seq < beyond.seq
        if is_ahead and (place.graph_task == graph_task or beyond.seq == _NEVER):
            return _at(trace, place)
    if order.parent(graph_task) is not None:
        around = _next(trace, order, graph_task, by)
        if around is not None:
            return Landing(*around, partial(Playhead.by_stops, count=by))
    other = findings.beside(root, by)
    if other is None:
        last = order.outermost[-1 if by > 0 else 0]
        end = trace.event_count(last) if by > 0 else 0
        if by > 0:
            said = "Nothing after that failed or is not finite. This is the end of the last pass."
        else:
            said = (
                "Nothing before that failed or is not finite. This is where the first pass begins."
            )
        return Landing(last, end, None, said if len(order.ids) > 1 else "")
    if by > 0:
        return _at(trace, marked_place(trace, other, findings.marks[other]))
    return Landing(other, trace.event_count(other), _to_last_stop)


def _to_last_stop(playhead: Playhead) -> None:
    """From the end of a marked pass; the very last event may be what it is marked for."""
    playhead.by_stops(-1)
    if playhead.beyond is not None:
        playhead.beyond = playhead.beyond._replace(seq=_NEVER)


def _at(trace: Trace, place: PassPosition) -> Landing:
    behind = 0 if place.seq < 0 else trace.position(place.seq, place.graph_task) + 1
    return Landing(place.graph_task, behind)


def _next(trace: Trace, order: Order, graph_task: int, by: int) -> tuple[int, int] | None:
    """The graph task that comes next, and the position at which it is entered."""
    parent = order.parent(graph_task)
    if parent is not None:
        task = trace.graph_task(graph_task)
        seq = task.end_seq if by > 0 else task.begin_seq
        if seq is not None and trace.event_count(parent):
            return parent, trace.position(seq, parent)
        return None
    other = order.beside(graph_task, by)
    if other is None:
        return None
    return other, 0 if by > 0 else trace.event_count(other)
