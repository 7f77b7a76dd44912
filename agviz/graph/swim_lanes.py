"""What a picture of time shows of a process: what threads did, waited for and gave each other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.origins import spread
from agviz.analysis.process_timeline import ProcessTimeline, common, united
from agviz.graph.critical import critical_path
from agviz.graph.model import thread_lanes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.analysis.process_timeline import ProcessPicture, RanSpan
    from agviz.graph.model import ThreadLane
    from agviz.traces.reader import Trace

NodePlace = tuple[int, int]
"""Graph task and node."""
_LONG: Final = 0.1
"""Of the time in which nodes ran, so much without one is long, twice as much is cut to that."""
_APART: Final = 4
"""Columns between arrows that are drawn apart."""


class Gap(NamedTuple):
    """A stretch of a pass in which a thread that has a part in it runs no node."""

    begin: int
    end: int
    is_waiting: bool
    """Whether another thread runs one meanwhile."""


class Crossing(NamedTuple):
    """A gradient that one thread gave to a node which another one ran."""

    producer: NodePlace
    consumer: NodePlace
    given: RanSpan
    taken: RanSpan
    is_critical: bool
    is_nonfinite: bool


class SwimLanes(NamedTuple):
    """Threads in a window of time; times are on the axis of the timeline."""

    begin: int
    end: int
    picture: ProcessPicture
    lanes: dict[int, ThreadLane]
    """By thread, in order: those that have something in the window."""
    gaps: dict[int, list[Gap]]
    crossings: list[Crossing]
    """In the order in which consumers began; of those that look alike, one."""
    crossed: int
    """How many there are in all."""
    turns: dict[NodePlace, str]
    """The turns of nodes in execution, as in graphs: ``12``, or ``5.3`` for the third that ran
    inside of the fifth."""
    names: dict[NodePlace, str]
    """Of the nodes at crossings, and of the first non-finite one."""
    critical: list[RanSpan]
    """The critical path of each pass, in order of time."""
    critical_ns: int
    nonfinite: list[RanSpan]
    """Nodes that put out something non-finite."""
    first_nonfinite: tuple[NodePlace, RanSpan] | None
    """Where that began."""


def swim_lanes(
    trace: Trace,
    passes: Sequence[int],
    columns: int,
    *,
    window: tuple[int, int] | None = None,
    has_cuts: bool = True,
) -> SwimLanes:
    """Read what is to be seen of some passes.

    Args:
        trace: of the process.
        passes: outermost graph tasks.
        columns: what is narrower than one of these is not distinguished.
        window: begin and end by ``time.monotonic_ns()``; None: those of the passes.
        has_cuts: cut out of the axis where a debugger held a thread, and most of long stretches of
            passes in which no thread ran a node.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    timeline = ProcessTimeline(trace, all_modules=True, cuts=())
    if has_cuts:
        stops = [(row.time_ns, row.end_ns) for row in trace.held() if row.end_ns is not None]
        idle = [cut for number in passes for cut in _long_gaps(trace, timeline, number, window)]
        timeline = ProcessTimeline(trace, all_modules=True, cuts=[*stops, *idle])
    while timeline.read_on(1.0):
        pass
    spans = [timeline.pass_span(number) for number in passes]
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    if window is not None:
        begin, end = map(timeline.axis.of, window)
    end = max(end, begin + 1)
    while timeline.load(begin, end, columns, 1.0):
        pass
    read = [_Pass(trace, timeline, number) for number in passes]
    picture = timeline.picture(begin, end, columns)
    used = {thread for one in read for thread in one.busy}
    shown = [lane.thread for lane in picture.lanes if any(row.bars for row in lane.rows)]
    lanes = thread_lanes({*used, *shown}, trace.threads)
    cell = max(1, (end - begin) // columns)
    gaps: dict[int, list[Gap]] = {thread: [] for thread in lanes}
    for one, span in zip(read, spans, strict=True):
        within = max(span[0], begin), min(span[1], end)
        for thread, found in one.gaps(within, cell):
            gaps[thread] += found

    def seen(spans: Iterable[RanSpan]) -> list[RanSpan]:
        return [span for span in spans if span.begin < end and span.end > begin]

    crossed = sorted(
        (
            each
            for one in read
            for each in one.crossings()
            if begin <= each.given.end and each.taken.begin <= end
        ),
        key=_order,
    )
    crossings = _distinct(crossed, cell * _APART)
    first = next((one.first_nonfinite for one in read if one.first_nonfinite), None)
    if first is not None and not seen([first[1]]):
        first = None
    named = [place for each in crossings for place in each[:2]]
    named += [] if first is None else [first[0]]
    return SwimLanes(
        begin=begin,
        end=end,
        picture=picture,
        lanes=lanes,
        gaps=gaps,
        crossings=crossings,
        crossed=len(crossed),
        turns={place: turn for one in read for place, turn in one.turns.items()},
        names={(task, node): trace.name(task, node) for task, node in named},
        critical=seen(span for one in read for span in one.critical),
        critical_ns=sum(one.critical_ns for one in read),
        nonfinite=seen(span for one in read for span in one.nonfinite),
        first_nonfinite=first,
    )


def _long_gaps(
    trace: Trace, timeline: ProcessTimeline, number: int, window: tuple[int, int] | None
) -> Iterator[tuple[int, int]]:
    """What to cut out of a pass, by ``time.monotonic_ns()``; ``timeline`` has no cuts."""
    (begin, end), zero_ns = timeline.pass_span(number), timeline.axis.begin_ns
    if window is not None:
        begin, end = max(begin, window[0] - zero_ns), min(end, window[1] - zero_ns)
    spans = (span for each in trace.family(number) for span in timeline.ran(each).values())
    busy = united(sorted(common(sorted(span[:2] for span in spans), [(begin, end)])))
    least = _LONG * sum(last - first for first, last in busy)
    for first, last in _between(busy, (begin, end)):
        if last - first > 2 * least > 0:
            yield zero_ns + first + int(least), zero_ns + last


class _Pass:
    """An outermost pass, and those inside of it."""

    def __init__(self, trace: Trace, timeline: ProcessTimeline, number: int) -> None:
        self._trace = trace
        self._times = {task: timeline.ran(task) for task in trace.family(number)}
        self.turns: dict[NodePlace, str] = {}
        self.busy: dict[int, list[tuple[int, int]]] = {}
        """By thread, when it ran nodes; not in order."""
        self._read_turns()
        self._bad = {
            (task, node, output)
            for task in self._times
            for _, node, output, *_ in trace.nonfinite_flows(task).outputs
        }
        bad_nodes = sorted({(task, node) for task, node, _ in self._bad})
        self.nonfinite = [self._times[task][node] for task, node in bad_nodes]
        found = spread(trace, number)
        self.first_nonfinite: tuple[NodePlace, RanSpan] | None = None
        if found is not None:
            place = found.first.graph_task, found.first.node
            span = self._times.get(place[0], {}).get(place[1])
            self.first_nonfinite = None if span is None else (place, span)
        ran = self._times[number]
        path = critical_path(
            sorted(ran, key=lambda node: ran[node].begin),
            [edge for edge in trace.edges(number) if edge.producer in ran and edge.consumer in ran],
            {node: span.end - span.begin for node, span in ran.items()},
        )
        self.critical = [ran[node] for node in path.nodes]
        self.critical_ns = path.total_ns
        self._links = {(number, *pair) for pair in pairwise(path.nodes)}

    def gaps(self, span: tuple[int, int], least: int) -> Iterator[tuple[int, list[Gap]]]:
        """Of each thread, those longer than ``least``."""
        busy = {thread: united(sorted(found), least) for thread, found in self.busy.items()}
        for thread, own in busy.items():
            others = united(
                sorted(each for t, found in busy.items() if t != thread for each in found)
            )
            found = []
            for begin, end in _between(own, span):
                waits = list(common([(begin, end)], others))
                idle = _between(waits, (begin, end))
                found += [Gap(*each, is_waiting=True) for each in waits]
                found += [Gap(*each, is_waiting=False) for each in idle]
            yield thread, sorted(each for each in found if each.end - each.begin > least)

    def crossings(self) -> Iterator[Crossing]:
        """The edges between nodes of different threads."""
        for task, ran in self._times.items():
            if len({span.thread for span in ran.values()}) < 2:
                continue
            for edge in self._trace.edges(task):
                given, taken = ran.get(edge.producer), ran.get(edge.consumer)
                if given is None or taken is None or given.thread == taken.thread:
                    continue
                yield Crossing(
                    (task, edge.producer),
                    (task, edge.consumer),
                    given,
                    taken,
                    (task, edge.producer, edge.consumer) in self._links,
                    (task, edge.producer, edge.output) in self._bad,
                )

    def _read_turns(self) -> None:
        """Number the nodes as they ran, those inside of another one after each other."""
        before: dict[NodePlace, int] = {}
        for task, ran in self._times.items():
            row = self._trace.graph_task(task)
            maker = row.parent, row.parent_node
            outer = f"{self.turns[maker]}." if maker in self.turns else ""
            first = before.get(maker, 0) if outer else 0
            order = sorted(ran, key=lambda node: (ran[node].begin, ran[node].end))
            for turn, node in enumerate(order, first + 1):
                self.turns[task, node] = f"{outer}{turn}"
                self.busy.setdefault(ran[node].thread, []).append(ran[node][:2])
            before[maker] = first + len(order)


def _distinct(crossings: Iterable[Crossing], least: int) -> list[Crossing]:
    """Of crossings that begin and end close to each other, the one that matters most."""
    found: dict[tuple[int, int, int, int], Crossing] = {}
    for each in crossings:
        given, taken = each.given, each.taken
        key = given.thread, taken.thread, given.end // least, taken.begin // least
        known = found.get(key)
        if known is None or each[4:] > known[4:]:
            found[key] = each
    return list(found.values())


def _between(taken: Sequence[tuple[int, int]], whole: tuple[int, int]) -> list[tuple[int, int]]:
    """What stretches in order leave of another one."""
    edges = [whole[0], *(edge for stretch in taken for edge in stretch), whole[1]]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]


def _order(crossing: Crossing) -> tuple[int, NodePlace, NodePlace]:
    return crossing.taken.begin, crossing.consumer, crossing.producer
