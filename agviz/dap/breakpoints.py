"""Where a recording stops that is run forwards or backwards."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.dap.arguments import RequestError
from agviz.dap.gradients import measured, received
from agviz.debugger.breakpoints import KINDS
from agviz.debugger.expressions import Facts, facts_of
from agviz_engine import events as e

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.debugger.breakpoints import Breakpoint
    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz_engine.events import Event

_PAGE: Final = 4_000
"""Nodes that are looked at in one go."""
_FIRST_PAGE: Final = 64
_PER_QUERY: Final = 400
_HITS: Final = re.compile(r"\s*(==?|>=?|)\s*(\d{1,9})\s*")
FAILED: Final = "failed"
NONFINITE: Final = "nonfinite"
FILTERS: Final = (FAILED, NONFINITE)
"""What a recording stops at beside breakpoints."""


class PlaceToStop(NamedTuple):
    """An event at which a recording stops."""

    seq: int
    graph_task: int
    breakpoints: tuple[int, ...] = ()
    """Those that were hit, by their ids."""
    filter: str = ""
    """One of :data:`FILTERS`; empty: it is none."""


class SetBreakpoint:
    """A breakpoint in a recording.

    Args:
        number: by which the editor knows it.
        wanted: what it says of nodes.
        nodes: where it is on a line, graph task and index of the nodes that the line made.
    """

    def __init__(
        self, number: int, wanted: Breakpoint, nodes: frozenset[tuple[int, int]] | None = None
    ) -> None:
        self.number = number
        self.wanted = wanted
        self._nodes = nodes
        self._fitting: dict[int, frozenset[int]] = {}
        """Nodes by graph task, where they were asked for."""

    @property
    def is_counted(self) -> bool:
        """Whether its hits have to be counted from the beginning, or are at no node's start."""
        wanted = self.wanted
        return bool(wanted.event or wanted.ignore_count) or wanted.hit_count is not None

    def fits(self, trace: Trace, graph_task: int, node: int) -> bool:
        """Whether it speaks of a node; its condition is another matter."""
        if self._nodes is not None:
            return (graph_task, node) in self._nodes
        return node in self._of(trace, graph_task)

    def _of(self, trace: Trace, graph_task: int) -> frozenset[int]:
        """The nodes of a graph task that fit."""
        found = self._fitting.get(graph_task)
        if found is None:
            every = trace.identities(graph_task)
            found = frozenset(each.node for each in every if self.wanted.asks_for(each))
            self._fitting[graph_task] = found
        return found

    def holds(self, trace: Trace, event: Event) -> bool:
        """Whether its condition is true of one of the gradients that an event is about."""
        predicate = self.wanted.predicate
        if predicate is None:
            return True
        return any(
            predicate.holds(Facts(facts_of(health, slot)))
            for slot, health in _gradients(trace, event)
        )

    def has_any(self, trace: Trace) -> bool:
        """Whether some node of the recording fits."""
        if self._nodes is not None:
            return bool(self._nodes)
        if not self.wanted.is_of_a_node:
            return True
        return any(self._of(trace, task.id) for task in trace.graph_tasks)


class RecordedStops:
    """All breakpoints and filters of a recording, as of one of its versions.

    Args:
        trace: the recording.
        breakpoints: those that were set.
        filters: of :data:`FILTERS`.
    """

    def __init__(
        self, trace: Trace, breakpoints: Sequence[SetBreakpoint], filters: Sequence[str]
    ) -> None:
        self._trace = trace
        self._simple = [each for each in breakpoints if not each.is_counted]
        self._counted = [each for each in breakpoints if each.is_counted]
        self._filters = filters
        self._first_nonfinite: dict[int, int] = {}

    def next(self, after: int, until: int | None = None) -> PlaceToStop | None:
        """The first place behind an event and up to another; None: there is none."""
        return self._nearest(after, until, 1)

    def previous(self, before: int, down_to: int | None = None) -> PlaceToStop | None:
        """The last place before an event and from another on; None: there is none."""
        return self._nearest(before, down_to, -1)

    def _nearest(self, seq: int, bound: int | None, by: int) -> PlaceToStop | None:
        found = [self._near_findings(seq, by), self._near_counted(seq, by)]
        nearest = _pick(found, by)
        if nearest is not None and (bound is None or by * nearest.seq < by * bound):
            bound = nearest.seq
        found.append(self._near_nodes(seq, bound, by))
        places = [each for each in found if each is not None]
        if bound is not None:
            places = [each for each in places if by * each.seq <= by * bound]
        nearest = _pick(places, by)
        if nearest is None:
            return None
        here = [each for each in places if each.seq == nearest.seq]
        hit = tuple(sorted(number for each in here for number in each.breakpoints))
        named = next((each.filter for each in here if each.filter), "")
        return nearest._replace(breakpoints=hit, filter=named)

    def _near_nodes(self, seq: int, bound: int | None, by: int) -> PlaceToStop | None:
        page = _FIRST_PAGE
        while self._simple:
            begun = self._trace.starts_near(seq, by * page)
            for each in begun:
                if bound is not None and by * each.seq > by * bound:
                    return None
                hit = self._hit(each.seq, each.graph_task, each.node)
                if hit:
                    return PlaceToStop(each.seq, each.graph_task, hit)
            if len(begun) < page:
                return None
            seq, page = begun[-1].seq, _PAGE
        return None

    def _hit(self, seq: int, graph_task: int, node: int) -> tuple[int, ...]:
        fitting = [each for each in self._simple if each.fits(self._trace, graph_task, node)]
        if any(each.wanted.condition for each in fitting):
            (event,) = self._trace.events_of([seq])
            fitting = [each for each in fitting if each.holds(self._trace, event)]
        return tuple(each.number for each in fitting)

    def _near_counted(self, seq: int, by: int) -> PlaceToStop | None:
        return _beside(self._counted_places, seq, by)

    @cached_property
    def _counted_places(self) -> list[PlaceToStop]:
        """Those of breakpoints whose hits are counted, in order."""
        return sorted(place for each in self._counted for place in self._hits(each))

    def _hits(self, breakpoint_: SetBreakpoint) -> Iterator[PlaceToStop]:
        """The hits of a breakpoint that stop, from the beginning on."""
        trace, wanted = self._trace, breakpoint_.wanted
        hits = 0
        kind = KINDS[wanted.event or e.NodeStarted.__name__]
        seqs = sorted(
            seq for task in trace.graph_tasks for seq in trace.seqs_where(task.id, [kind])
        )
        for begin in range(0, len(seqs), _PER_QUERY):
            for event in trace.events_of(seqs[begin : begin + _PER_QUERY]):
                node = getattr(event, "node", -1)
                if wanted.is_of_a_node and not breakpoint_.fits(trace, event.graph_task, node):
                    continue
                if not breakpoint_.holds(trace, event):
                    continue
                hits += 1
                if wanted.stops_at(hits):
                    yield PlaceToStop(event.seq, event.graph_task, (breakpoint_.number,))

    def _near_findings(self, seq: int, by: int) -> PlaceToStop | None:
        found = []
        if FAILED in self._filters:
            found.append(_beside(self._failures, seq, by))
        if NONFINITE in self._filters:
            found.append(self._near_nonfinite(seq, by))
        return _pick(found, by)

    @cached_property
    def _failures(self) -> list[PlaceToStop]:
        seqs = ((self._trace.first_failure(task.id), task.id) for task in self._trace.graph_tasks)
        return sorted(
            PlaceToStop(seq, number, filter=FAILED) for seq, number in seqs if seq is not None
        )

    def _near_nonfinite(self, seq: int, by: int) -> PlaceToStop | None:
        """The first non-finite gradient of a graph task; they are in order of these."""
        numbers = self._nonfinite
        if by > 0:
            place = bisect_right(numbers, seq, key=self._first_of)
        else:
            place = bisect_left(numbers, seq, key=self._first_of) - 1
        if not 0 <= place < len(numbers):
            return None
        return PlaceToStop(self._first_of(numbers[place]), numbers[place], filter=NONFINITE)

    @cached_property
    def _nonfinite(self) -> list[int]:
        return self._trace.nonfinite_graph_tasks()

    def _first_of(self, graph_task: int) -> int:
        found = self._first_nonfinite.get(graph_task)
        if found is None:
            seq = self._trace.first_nonfinite_flow(graph_task)
            found = self._trace.graph_task(graph_task).begin_seq if seq is None else seq
            self._first_nonfinite[graph_task] = found
        return found


def conditioned(wanted: Breakpoint, condition: str, hits: str) -> Breakpoint:
    """A breakpoint with a condition of the gradients, and of the number of hits.

    Args:
        wanted: the breakpoint.
        condition: see :mod:`agviz.debugger.expressions`; empty: none.
        hits: ``5`` for the fifth hit only, ``> 5`` and ``>= 5`` for later ones; empty: all.

    Raises:
        AgvizError: one of them makes no sense.
    """
    if condition.strip():
        wanted = wanted.changed(condition=condition)
    if not hits.strip():
        return wanted
    match = _HITS.fullmatch(hits)
    if match is None:
        raise RequestError(f"{hits!r} is no number of hits; write one like 5, > 5 or >= 5")
    number = int(match[2])
    if match[1] == ">":
        return wanted.changed(ignore_count=number)
    if match[1] == ">=":
        return wanted.changed(ignore_count=max(number - 1, 0))
    return wanted.changed(hit_count=number)


def _pick(places: Sequence[PlaceToStop | None], by: int) -> PlaceToStop | None:
    known = [each for each in places if each is not None]
    return min(known, key=lambda each: by * each.seq, default=None)


def _beside(places: Sequence[PlaceToStop], seq: int, by: int) -> PlaceToStop | None:
    """The next of some places in order, or the previous one, with all that was hit there."""
    if by > 0:
        found = bisect_right(places, seq, key=lambda each: each.seq)
    else:
        found = bisect_left(places, seq, key=lambda each: each.seq) - 1
    if not 0 <= found < len(places):
        return None
    here = places[found]
    hit = {number for each in places if each.seq == here.seq for number in each.breakpoints}
    return here._replace(breakpoints=tuple(sorted(hit)))


def _gradients(trace: Trace, event: Event) -> Iterator[tuple[int, Health]]:
    """What was measured of the gradients that an event is about, with their slots."""
    if isinstance(event, e.NodeStarted):
        came = received(trace, event.graph_task, event.node, event.seq)
        yield from ((slot, each.health) for slot, each in came.items())
    elif isinstance(event, e.NodeFinished):
        for row in trace.health(event.graph_task, event.node):
            if row.role == "output":
                yield row.slot, measured(row)
    else:
        row_here = trace.health_at(event.seq)
        if row_here is not None:
            yield row_here.slot, measured(row_here)
