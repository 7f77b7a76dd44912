"""One axis of time for a whole process: forwards, passes, modules, nodes and optimizer steps.

What a thread does is nested: a backward pass holds modules, those hold nodes, a node may hold a
reentrant pass, and a step that is given a closure holds passes itself. A picture has bars where
these are as wide as a cell, and the share of each cell that is taken where they are not. What
passes hold is read for those only that are wide enough for it to be seen, piece by piece.

Time during which a debugger held a thread is cut out of the axis, for all threads.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow

_AT_ONCE: Final = 5_000
"""Nodes or passes that are read before the clock is looked at: some ms."""
_MOST_KEPT: Final = 600_000
"""Items of passes that are kept for the next picture."""
_LEAST_CELLS: Final = 2
"""Of a pass, for what it holds to be read."""
_DEEPEST: Final = 12
"""Modules within modules that have spans."""


class SpanKind(Enum):
    """What a stretch of a thread's time is."""

    FORWARD = "forward"
    """From the first call of a module since the pass before to the call of backward."""
    CALL = "module call"
    """In a forward."""
    BACKWARD = "backward"
    MODULE = "module"
    """Nodes of one module that ran one after the other."""
    NODE = "node"
    STEP = "optimizer step"


class ThreadSpan(NamedTuple):
    """A stretch that was recorded; times are on the axis."""

    begin: int
    end: int
    kind: SpanKind
    name: str
    """Type of the node, path of the module, class of the optimizer; else empty."""
    module: str = ""
    """Of a node."""
    graph_task: int = -1
    """-1: a step that belongs to none."""
    node: int = -1


class CutStop(NamedTuple):
    """A stretch during which a debugger held a thread."""

    at: int
    """On the axis, where it takes no time."""
    took_ns: int


class ProcessAxis:
    """Time since the first moment, without stops.

    Args:
        begin_ns: the first moment, a ``time.monotonic_ns()`` as all times that are given.
        stops: begin and end of each; they may overlap.
    """

    def __init__(self, begin_ns: int, stops: Iterable[tuple[int, int]]) -> None:
        self.begin_ns = begin_ns
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in sorted(stops):
            first = max(begin, begin_ns)
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            elif end > first:
                self._begins.append(first)
                self._ends.append(end)
        lengths = (end - begin for begin, end in zip(self._begins, self._ends, strict=True))
        self._cut = list(accumulate(lengths, initial=0))

    def of(self, time_ns: int) -> int:
        """Where a moment is; one during a stop is where the stop is."""
        place = bisect_right(self._begins, time_ns)
        if place and time_ns < self._ends[place - 1]:
            return self._begins[place - 1] - self.begin_ns - self._cut[place - 1]
        return time_ns - self.begin_ns - self._cut[place]

    @property
    def stops(self) -> list[CutStop]:
        """In order."""
        return [
            CutStop(begin - self.begin_ns - cut, end - begin)
            for begin, end, cut in zip(self._begins, self._ends, self._cut, strict=False)
        ]


class SpanLevel:
    """Spans of one thread that do not overlap, in order: those of one depth."""

    def __init__(self) -> None:
        self.begins = array("q")
        self.ends = array("q")
        self._taken = array("q", [0])
        """Length of all spans before each."""
        self.items: list[ThreadSpan] = []

    def add(self, item: ThreadSpan) -> None:
        """Add the next one."""
        self.begins.append(item.begin)
        self.ends.append(item.end)
        self._taken.append(self._taken[-1] + item.end - item.begin)
        self.items.append(item)

    def stretch(self, place: int, end: int) -> None:
        """Have the last span, which is at ``place``, end later."""
        self._taken[-1] += end - self.ends[place]
        self.ends[place] = end
        self.items[place] = self.items[place]._replace(end=end)

    def taken(self, moment: float) -> float:
        """How much of the time before a moment is taken."""
        place = bisect_right(self.begins, moment)
        if not place:
            return 0
        over = self.ends[place - 1] - moment
        return self._taken[place] - max(over, 0)

    def between(self, begin: float, end: float) -> Iterator[ThreadSpan]:
        """The spans that have a part in a stretch of time."""
        place = max(0, bisect_right(self.begins, begin) - 1)
        beyond = bisect_left(self.begins, end)
        return (item for item in self.items[place:beyond] if item.end > begin)

    def wide(self, begin: float, cell: float, columns: int) -> Iterator[ThreadSpan]:
        """The spans in a window that are as wide as a cell, in order."""
        last = -1
        for border in range(columns + 1):
            # One as wide as a cell is at a border of one.
            at = begin + border * cell
            place = bisect_right(self.begins, at) - 1
            if place > last and self.ends[place] >= at:
                last = place
                item = self.items[place]
                if item.end - item.begin >= cell and item.end > begin:
                    yield item


class LaneRow(NamedTuple):
    """What a picture shows of one thread at one depth."""

    bars: list[ThreadSpan]
    """Those as wide as a cell or wider, in order."""
    density: list[float]
    """By cell: the share, from 0 to 1, that is taken by others."""


class ProcessLane(NamedTuple):
    """What a picture shows of one thread."""

    thread: int
    rows: list[LaneRow]
    """By depth."""
    idle: list[float]
    """By cell: the share in which the thread did nothing that was recorded."""


class ProcessPicture(NamedTuple):
    """A window of the axis."""

    begin: int
    end: int
    columns: int
    lanes: list[ProcessLane]
    stops: list[CutStop]
    """Those in it."""
    is_read: bool
    """Whether nothing is left to be read of what could be seen in it."""


class NestedSpan(NamedTuple):
    """An item among those of its thread."""

    parent: int
    """Place of the innermost item that it is in; -1: none."""
    item: ThreadSpan


def nested(items: Iterable[ThreadSpan]) -> Iterator[NestedSpan]:
    """Which item is in which.

    Args:
        items: of one thread, by begin, the longer first. What ends behind what it is in is cut.
    """
    stack: list[tuple[int, int]] = []
    for place, item in enumerate(items):
        while stack and stack[-1][0] <= item.begin:
            stack.pop()
        end, parent = (min(item.end, stack[-1][0]), stack[-1][1]) if stack else (item.end, -1)
        yield NestedSpan(parent, item if end == item.end else item._replace(end=end))
        stack.append((end, place))


class _Frame:
    """Something that goes on while items are laid out."""

    __slots__ = ("depth", "end", "runs")

    def __init__(self, end: float, depth: int) -> None:
        self.end = end
        self.depth = depth
        self.runs: list[tuple[tuple[int, str], int]] = []
        """What stands for several items that follow each other in it: key, and place in its
        level."""


def laid_out(
    items: Sequence[ThreadSpan], depth: int, foreign: frozenset[int], *, all_modules: bool = False
) -> Iterator[list[SpanLevel]]:
    """The levels of one thread, from ``depth`` on; as they grow.

    Args:
        items: as for :func:`nested`.
        depth: levels above it stay empty.
        foreign: graph tasks whose pass is no item here, as another thread called it: what follows
            each other of one stands in a span of its own.
        all_modules: a module is in a span of the module around it, and nodes are as deep as the
            deepest among them, so that those of one pass are on one level.
    """
    nodes = [item for item in items if item.kind is SpanKind.NODE] if all_modules else []
    room = max((len(_around(item, foreign, all_modules=True)) for item in nodes), default=0)
    levels: list[SpanLevel] = []
    stack = [_Frame(float("inf"), depth - 1)]
    for number, given in enumerate(items):
        if number % _AT_ONCE == 0:
            yield levels
        while stack[-1].end <= given.begin:
            stack.pop()
        around = stack[-1]
        item = given if given.end <= around.end else given._replace(end=int(around.end))
        keys: list[tuple[int, str]] = []
        if item.kind is SpanKind.NODE:
            keys = _around(item, foreign, all_modules=all_modules)
        own = around.depth + 1 + (room if item.kind is SpanKind.NODE and room else len(keys))
        while len(levels) <= own:
            levels.append(SpanLevel())
        kept = 0
        while kept < min(len(keys), len(around.runs)) and keys[kept] == around.runs[kept][0]:
            levels[around.depth + 1 + kept].stretch(around.runs[kept][1], item.end)
            kept += 1
        del around.runs[kept:]
        for place in range(kept, len(keys)):
            level = levels[around.depth + 1 + place]
            graph_task, module = keys[place]
            kind = SpanKind.MODULE if module else SpanKind.BACKWARD
            around.runs.append((keys[place], len(level.items)))
            level.add(ThreadSpan(item.begin, item.end, kind, module, graph_task=graph_task))
        levels[own].add(item)
        stack.append(_Frame(item.end, own))
    yield levels


def _around(
    item: ThreadSpan, foreign: frozenset[int], *, all_modules: bool
) -> list[tuple[int, str]]:
    """The spans that a node is in beside those that are recorded: its pass, and modules."""
    keys = [(item.graph_task, "")] if item.graph_task in foreign else []
    if item.module and all_modules:
        parts = item.module.split(".")[:_DEEPEST]
        keys += [(item.graph_task, ".".join(parts[: at + 1])) for at in range(len(parts))]
    elif item.module:
        keys.append((item.graph_task, item.module))
    return keys


def _order(item: ThreadSpan) -> tuple[int, int]:
    return item.begin, -item.end


class _Phase(NamedTuple):
    """A forward or an outermost pass."""

    item: ThreadSpan
    thread: int
    depth: int


class _Inside(NamedTuple):
    """What was read of a phase: items of each thread, without the phase itself, in order."""

    threads: dict[int, list[ThreadSpan]]
    foreign: frozenset[int]
    size: int


_Key = tuple[SpanKind, int]
"""Forward or backward, and graph task."""


class PartTimes(NamedTuple):
    """Time of a stretch of the axis by what it was spent on; what is inside of others is taken off.

    Times are in ns.
    """

    begin: int
    end: int
    threads: dict[int, dict[str, int]]
    """By thread: nodes, module calls, forward outside of modules, optimizer steps, engine (a pass
    in which no thread runs a node), waiting (a pass in which only other threads run one), idle.
    Their sum is the stretch."""
    modules: dict[str, tuple[int, int]]
    """By path: in calls of forward, and in nodes of backward."""
    types: dict[str, tuple[int, int]]
    """By type of node: time, and how many had a part."""
    steps: dict[str, tuple[int, int]]
    """By class of optimizer: the same."""


NODES, CALLS, FORWARD, STEPS, ENGINE, WAITING, IDLE = PARTS = (
    *("nodes", "module calls", "forward outside of modules", "optimizer steps"),
    *("engine", "waiting for other threads", "idle"),
)
"""The parts of a thread's time."""


class RanSpan(NamedTuple):
    """When a node ran, on the axis, and on which thread."""

    begin: int
    end: int
    thread: int


class NodeNeighbour(NamedTuple):
    """A node that gives the one that was asked for a gradient, or is given one."""

    is_producer: bool
    node: int
    name: str
    thread: int
    begin: int
    """On the axis."""
    end: int


class ProcessTimeline:
    """What the threads of a recording did, on one axis.

    Args:
        trace: stays open as long as this is used.
        all_modules: as for :func:`laid_out`.
        cuts: what is cut out of the axis, by ``time.monotonic_ns()``; None: where a debugger held
            a thread.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        all_modules: bool = False,
        cuts: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        self._trace = trace
        self._all_modules = all_modules
        self._trace_threads = trace.threads
        self._version = trace.version
        meta = trace.meta
        last = meta.end_ns
        if last is None:
            seq = trace.last_seq
            last = trace.events_of([seq])[0].time_ns if seq >= 0 else meta.start_ns
        if cuts is None:
            cuts = [(r.time_ns, last if r.end_ns is None else r.end_ns) for r in trace.held()]
        self.axis = ProcessAxis(meta.start_ns, cuts)
        self._last_ns = last
        self.span = 0, max(1, self.axis.of(last))
        """Begin and end of the recording, on the axis."""
        self.active = self.span
        """The same without what is before the first thing that was recorded: imports, mostly."""
        self._tasks: Sequence[GraphTaskRow] = ()
        self._phases: dict[_Key, _Phase] = {}
        self._levels: dict[int, list[SpanLevel]] = {}
        self._steps_in: dict[_Key, list[ThreadSpan]] = {}
        self._coarse = self._read_coarse()
        self.is_read = False
        """Whether all passes are known, though not what they hold."""
        self._inside: OrderedDict[_Key, _Inside] = OrderedDict()
        self._kept = 0
        self._reading: tuple[_Key, Iterator[_Inside | None]] | None = None
        self._laid: OrderedDict[tuple[int, tuple[_Key, ...]], list[SpanLevel]] = OrderedDict()

    @property
    def is_current(self) -> bool:
        """Whether the file has not grown since."""
        return self._trace.version == self._version

    @property
    def threads(self) -> list[int]:
        """Those of which something is recorded, by id."""
        return sorted({thread.id for thread in self._trace_threads} | self._levels.keys())

    def read_on(self, seconds: float) -> bool:
        """Read which passes, forwards and steps there are; whether there is more."""
        until = time.perf_counter() + seconds
        while not self.is_read:
            self.is_read = next(self._coarse, None) is None
            if time.perf_counter() >= until:
                break
        return not self.is_read

    def pass_span(self, graph_task: int) -> tuple[int, int]:
        """Begin and end of a pass, on the axis."""
        task = self._trace.graph_task(graph_task)
        return self.axis.of(task.begin_ns), self.axis.of(self._end_of(task))

    def load(self, begin: int, end: int, columns: int, seconds: float) -> bool:
        """Read what can be seen in a window; whether there is more to be read."""
        until = time.perf_counter() + seconds
        for key in self._seen(begin, end, columns):
            if key in self._inside:
                self._inside.move_to_end(key)
                continue
            if self._reading is None or self._reading[0] != key:
                self._reading = key, self._read_inside(key)
            for found in self._reading[1]:
                if found is not None:
                    self._keep(key, found)
                if time.perf_counter() >= until:
                    return True
            self._reading = None
        return False

    def picture(self, begin: int, end: int, columns: int) -> ProcessPicture:
        """A window of the axis in ``columns`` cells, as far as it was read.

        What can be seen in it was read by :meth:`load`.
        """
        cell = (end - begin) / columns
        seen = self._seen(begin, end, columns)
        known = [key for key in seen if key in self._inside]
        lanes = []
        for thread in self._threads(known):
            layers = [self._levels.get(thread, [])]
            layers += self._layers(thread, known)
            rows = [
                _row([layer[depth] for layer in layers if depth < len(layer)], begin, cell, columns)
                for depth in range(max(map(len, layers), default=0))
            ]
            lanes.append(ProcessLane(thread, rows, _idle(rows[:1], begin, cell, columns)))
        stops = [stop for stop in self.axis.stops if begin <= stop.at <= end]
        return ProcessPicture(begin, end, columns, lanes, stops, self.is_read and known == seen)

    def times(self, begin: int, end: int) -> Iterator[PartTimes | None]:
        """Sum up a stretch of the axis; None: it goes on. The last is the sum.

        :meth:`read_on` has to have read everything.
        """
        sums = _Sums(begin, end)
        for thread, levels in self._levels.items():
            sums.coarse(thread, levels)
            yield None
        for key, phase in self._overlapping(begin, end):
            known = self._inside.get(key)
            for found in self._read_inside(key) if known is None else iter((known,)):
                if found is not None:
                    sums.phase(phase, found)
                yield None
        yield sums.result()

    def ran(self, graph_task: int) -> dict[int, RanSpan]:
        """When each node of a graph task ran, and where; others are left out."""
        task, of = self._trace.graph_task(graph_task), self.axis.of
        columns = zip(*self._node_times(task), strict=True)
        return {
            node: RanSpan(of(task.begin_ns + begin), of(task.begin_ns + end), thread)
            for node, (begin, end, thread) in enumerate(columns)
            if thread >= 0
        }

    def neighbours(self, graph_task: int, node: int) -> list[NodeNeighbour]:
        """Producers and consumers of a node, as far as a thread took them up, in order of time."""
        trace, times = self._trace, self._trace.node_times(graph_task)
        begin = trace.graph_task(graph_task).begin_ns
        producers = {edge.producer for edge in trace.edges_into(graph_task, node)}
        consumers = {edge.consumer for edge in trace.edges_from(graph_task, node)}
        found = []
        for is_producer, others in ((True, producers), (False, consumers)):
            for other in others:
                if not 0 <= other < len(times.threads) or times.threads[other] < 0:
                    continue
                start = begin + times.starts[other]
                stretch = self.axis.of(start), self.axis.of(start + times.durations[other])
                name = trace.name(graph_task, other)
                found.append(
                    NodeNeighbour(is_producer, other, name, times.threads[other], *stretch)
                )
        return sorted(found, key=lambda one: (one.begin, one.node))

    # Passes, forwards and steps.

    def _read_coarse(self) -> Iterator[bool]:
        trace, axis = self._trace, self.axis
        self._tasks = trace.graph_tasks
        yield True
        forwards = trace.forwards()
        yield True
        by_thread: dict[int, list[ThreadSpan]] = {}
        for number, task in enumerate(self._tasks):
            if number % _AT_ONCE == 0:
                yield True
            if task.parent >= 0:
                continue
            mine = by_thread.setdefault(task.thread, [])
            begin = axis.of(task.begin_ns)
            begun = forwards.get(task.id)
            if begun is not None and begun < task.begin_ns:
                forward = SpanKind.FORWARD
                mine.append(ThreadSpan(axis.of(begun), begin, forward, "", graph_task=task.id))
            end = axis.of(self._end_of(task))
            mine.append(ThreadSpan(begin, end, SpanKind.BACKWARD, "", graph_task=task.id))
        for step in trace.optimizer_steps():
            if step.begin_ns is not None:
                item = ThreadSpan(
                    axis.of(step.begin_ns), axis.of(step.time_ns), SpanKind.STEP, step.optimizer
                )
                by_thread.setdefault(step.thread, []).append(item)
        yield True
        for items in by_thread.values():
            items.sort(key=_order)
        self.active = min((items[0].begin for items in by_thread.values()), default=0), self.span[1]
        for thread, items in sorted(by_thread.items()):
            yield from self._take_coarse(thread, items)

    def _take_coarse(self, thread: int, items: list[ThreadSpan]) -> Iterator[bool]:
        """Lay out what a thread called; a step in a forward or a pass is laid out with that."""
        levels = self._levels[thread] = []
        stack: list[tuple[int, _Key | None]] = []
        for number, given in enumerate(items):
            if number % _AT_ONCE == 0:
                yield True
            while stack and stack[-1][0] <= given.begin:
                stack.pop()
            item = given
            if stack:
                end, phase = stack[-1]
                item = given if given.end <= end else given._replace(end=end)
                if phase is not None and item.kind is SpanKind.STEP:
                    self._steps_in.setdefault(phase, []).append(item)
                    continue
            depth = len(stack)
            if depth == len(levels):
                levels.append(SpanLevel())
            levels[depth].add(item)
            is_phase = item.kind is not SpanKind.STEP
            key = (item.kind, item.graph_task) if is_phase else None
            if key is not None:
                self._phases[key] = _Phase(item, thread, depth)
            stack.append((item.end, key))

    def _end_of(self, task: GraphTaskRow) -> int:
        return max(self._last_ns, task.begin_ns) if task.end_ns is None else task.end_ns

    # What they hold.

    def _overlapping(self, begin: float, end: float) -> list[tuple[_Key, _Phase]]:
        """The phases that have a part in a stretch of time."""
        found = []
        for levels in self._levels.values():
            for level in levels:
                for item in level.between(begin, end):
                    key = item.kind, item.graph_task
                    if key in self._phases:
                        found.append((key, self._phases[key]))
        return found

    def _seen(self, begin: int, end: int, columns: int) -> list[_Key]:
        """The phases in a window that are so wide that what they hold can be seen."""
        cell = (end - begin) / columns * _LEAST_CELLS
        found = []
        for levels in self._levels.values():
            for level in levels:
                for item in level.wide(begin, cell, columns // _LEAST_CELLS + 1):
                    key = item.kind, item.graph_task
                    if item.begin < end and key in self._phases:
                        found.append(key)
        return found

    def _threads(self, known: list[_Key]) -> list[int]:
        return sorted({*self._levels, *(t for key in known for t in self._inside[key].threads)})

    def _layers(self, thread: int, known: list[_Key]) -> Iterator[list[SpanLevel]]:
        """What phases hold on a thread; those that overlap there are laid out together."""
        mine = []
        for key in known:
            items = self._inside[key].threads.get(thread)
            if items:
                mine.append((items[0].begin, max(items[-1].end, self._phases[key].item.end), key))
        group: list[_Key] = []
        until = 0
        for begin, end, key in sorted(mine, key=lambda one: one[:2]):
            if group and begin >= until:
                yield self._together(thread, tuple(group))
                group = []
            group.append(key)
            until = max(until, end)
        if group:
            yield self._together(thread, tuple(group))

    def _together(self, thread: int, group: tuple[_Key, ...]) -> list[SpanLevel]:
        found = self._laid.get((thread, group))
        if found is None:
            depth = max(
                (self._phases[k].depth + 1 for k in group if self._phases[k].thread == thread),
                default=0,
            )
            items = [item for key in group for item in self._inside[key].threads[thread]]
            if len(group) > 1:
                items.sort(key=_order)
            foreign = frozenset().union(
                *(
                    self._inside[key].foreign
                    for key in group
                    if self._phases[key].thread != thread or key[0] is SpanKind.FORWARD
                )
            )
            levels = laid_out(items, depth, foreign, all_modules=self._all_modules)
            self._laid[thread, group] = [*levels][-1]
            while len(self._laid) > _MOST_LAID:
                self._laid.popitem(last=False)
        self._laid.move_to_end((thread, group))
        return self._laid[thread, group]

    def _keep(self, key: _Key, found: _Inside) -> None:
        self._inside[key] = found
        self._kept += found.size
        while self._kept > _MOST_KEPT and len(self._inside) > 1:
            gone, inside = self._inside.popitem(last=False)
            self._kept -= inside.size
            for laid in [laid for laid in self._laid if gone in laid[1]]:
                del self._laid[laid]

    def _read_inside(self, key: _Key) -> Iterator[_Inside | None]:
        """Piece by piece; the last is all of it."""
        kind, graph_task = key
        phase = self._phases[key]
        threads: dict[int, list[ThreadSpan]] = {}
        steps = self._steps_in.get(key, [])
        if steps:
            threads[phase.thread] = steps[:]
        foreign: set[int] = set()
        if kind is SpanKind.FORWARD:
            self._read_calls(phase, threads)
            yield None
        else:
            for number in self._trace.family(graph_task):
                yield from self._read_nodes(self._trace.graph_task(number), threads)
                foreign.add(number)
        for items in threads.values():
            items.sort(key=_order)
            yield None
        yield _Inside(threads, frozenset(foreign), 1 + sum(map(len, threads.values())))

    def _read_calls(self, phase: _Phase, threads: dict[int, list[ThreadSpan]]) -> None:
        of, last = self.axis.of, phase.item.end
        calls = [
            ThreadSpan(
                of(call.begin_ns),
                last if call.end_ns is None else min(of(call.end_ns), last),
                SpanKind.CALL,
                call.module,
                graph_task=phase.item.graph_task,
            )
            for call in self._trace.module_calls(phase.item.graph_task)
        ]
        if calls:
            threads.setdefault(phase.thread, []).extend(calls)

    def _read_nodes(
        self, task: GraphTaskRow, threads: dict[int, list[ThreadSpan]]
    ) -> Iterator[None]:
        of, begin_ns, kind = self.axis.of, task.begin_ns, SpanKind.NODE
        if task.parent >= 0:
            ends = of(begin_ns), of(self._end_of(task))
            reentrant = ThreadSpan(*ends, SpanKind.BACKWARD, "", graph_task=task.id)
            threads.setdefault(task.thread, []).append(reentrant)
        starts, lasts, ran_on = self._node_times(task)
        first = 0
        while first < len(ran_on):
            yield None
            labels = self._trace.node_labels(task.id, first, _AT_ONCE)
            for node, name, module in labels:
                thread = ran_on[node]
                if thread >= 0:
                    item = ThreadSpan(
                        of(begin_ns + starts[node]),
                        of(begin_ns + lasts[node]),
                        *(kind, name, module, task.id, node),
                    )
                    threads.setdefault(thread, []).append(item)
            first += _AT_ONCE

    def _node_times(self, task: GraphTaskRow) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Begin and end after the pass began, and thread, by node; thread -1: none took it up."""
        if task.status is GraphTaskStatus.FINISHED:
            times = self._trace.node_times(task.id)
            ends = [begin + took for begin, took in zip(*times[:2], strict=True)]
            return times.starts, ends, times.threads
        size = len(self._trace.nodes(task.id))
        starts, lasts, threads = [0] * size, [0] * size, [-1] * size
        for row in self._trace.executions(task.id):
            end = self._end_of(task) if row.end_ns is None else row.end_ns
            starts[row.node] = row.start_ns - task.begin_ns
            lasts[row.node] = max(end, row.start_ns) - task.begin_ns
            threads[row.node] = row.thread
        return starts, lasts, threads


_MOST_LAID: Final = 500


def _row(levels: list[SpanLevel], begin: int, cell: float, columns: int) -> LaneRow:
    """Those of one depth; they do not overlap each other."""
    bars: list[ThreadSpan] = []
    taken = [0.0] * columns
    for level in levels:
        bars += level.wide(begin, cell, columns)
        before = level.taken(begin)
        for column in range(columns):
            upto = level.taken(begin + (column + 1) * cell)
            taken[column] += upto - before
            before = upto
    bars = sorted((bar for bar in bars if bar.begin < begin + cell * columns), key=_order)
    for bar in bars:
        _take_off(taken, bar, begin, cell)
    return LaneRow(bars, [min(max(share / cell, 0.0), 1.0) for share in taken])


def _take_off(taken: list[float], bar: ThreadSpan, begin: int, cell: float) -> None:
    """Take off from what is taken of each cell what a bar takes."""
    first = max(0, int((bar.begin - begin) / cell))
    last = min(len(taken) - 1, int((bar.end - begin) / cell))
    for column in range(first, last + 1):
        low, high = begin + column * cell, begin + (column + 1) * cell
        taken[column] -= max(0.0, min(bar.end, high) - max(bar.begin, low))


def _idle(rows: list[LaneRow], begin: int, cell: float, columns: int) -> list[float]:
    """By cell, what the uppermost row leaves free."""
    free = [cell] * columns
    for row in rows:
        free = [left - share * cell for left, share in zip(free, row.density, strict=True)]
        for bar in row.bars:
            _take_off(free, bar, begin, cell)
    return [min(max(share / cell, 0.0), 1.0) for share in free]


class _Sums:
    """Adds up a stretch of the axis."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self._threads: dict[int, dict[str, int]] = {}
        self._modules: dict[str, list[int]] = {}
        self._types: dict[str, list[int]] = {}
        self._steps: dict[str, list[int]] = {}

    def coarse(self, thread: int, levels: list[SpanLevel]) -> None:
        """Take what a thread called."""
        parts = self._parts(thread)
        below = [*levels[1:], SpanLevel()]
        for depth, (level, inner) in enumerate(zip(levels, below, strict=True)):
            for item in level.between(self._begin, self._end):
                length = self._overlap(item)
                if depth == 0:
                    parts[IDLE] -= length
                if item.kind is SpanKind.STEP:
                    first, last = max(item.begin, self._begin), min(item.end, self._end)
                    self._step(parts, item, length - int(inner.taken(last) - inner.taken(first)))

    def phase(self, phase: _Phase, inside: _Inside) -> None:
        """Take a forward or a pass, and what it holds."""
        busy: dict[int, list[ThreadSpan]] = {}
        gaps: list[tuple[int, list[tuple[int, int]]]] = []
        of_phase: dict[int, list[ThreadSpan]] = {phase.thread: []} | inside.threads
        for thread, items in of_phase.items():
            is_own = thread == phase.thread
            parts = self._parts(thread)
            among = [phase.item, *items] if is_own else items
            children: list[list[ThreadSpan]] = [[] for _ in among]
            found = list(nested(among))
            for parent, item in found:
                if parent >= 0:
                    children[parent].append(item)
                elif not is_own:
                    parts[IDLE] -= self._overlap(item)
                    busy.setdefault(thread, []).append(item)
                if item.kind is SpanKind.NODE and (is_own and found[max(parent, 0)].parent < 0):
                    busy.setdefault(thread, []).append(item)
            for (_, item), inner in zip(found, children, strict=True):
                if item.kind is SpanKind.BACKWARD:
                    gaps.append((thread, _free(item, inner)))
                else:
                    self._item(parts, item, self._overlap(item) - sum(map(self._overlap, inner)))
        self._take_gaps(gaps, busy)

    def _item(self, parts: dict[str, int], item: ThreadSpan, own: int) -> None:
        match item.kind:
            case SpanKind.NODE:
                self._node(parts, item, own)
            case SpanKind.STEP:
                self._step(parts, item, own)
            case SpanKind.CALL:
                parts[CALLS] += own
                self._modules.setdefault(item.name, [0, 0])[0] += own
            case _:
                parts[FORWARD] += own

    def _take_gaps(
        self, gaps: list[tuple[int, list[tuple[int, int]]]], busy: dict[int, list[ThreadSpan]]
    ) -> None:
        """Take what passes leave free on threads that called them."""
        for thread, free in gaps:
            others = sorted(
                (item.begin, item.end)
                for other, items in busy.items()
                if other != thread
                for item in items
            )
            total = sum(self._length(*gap) for gap in free)
            waiting = sum(self._length(*both) for both in common(free, united(others)))
            parts = self._parts(thread)
            parts[WAITING] += waiting
            parts[ENGINE] += total - waiting

    def result(self) -> PartTimes:
        """Everything."""
        return PartTimes(
            self._begin,
            self._end,
            self._threads,
            {name: (times[0], times[1]) for name, times in self._modules.items() if any(times)},
            {name: (times[0], times[1]) for name, times in self._types.items()},
            {name: (times[0], times[1]) for name, times in self._steps.items()},
        )

    def _parts(self, thread: int) -> dict[str, int]:
        parts = self._threads.get(thread)
        if parts is None:
            parts = self._threads[thread] = dict.fromkeys(PARTS, 0)
            parts[IDLE] = self._end - self._begin
        return parts

    def _node(self, parts: dict[str, int], item: ThreadSpan, own: int) -> None:
        parts[NODES] += own
        if item.end > self._begin and item.begin < self._end:
            of_type = self._types.setdefault(item.name, [0, 0])
            of_type[0] += own
            of_type[1] += 1
            self._modules.setdefault(item.module, [0, 0])[1] += own

    def _step(self, parts: dict[str, int], item: ThreadSpan, own: int) -> None:
        if item.end > self._begin and item.begin < self._end:
            parts[STEPS] += own
            times = self._steps.setdefault(item.name, [0, 0])
            times[0] += own
            times[1] += 1

    def _overlap(self, item: ThreadSpan) -> int:
        return self._length(item.begin, item.end)

    def _length(self, begin: int, end: int) -> int:
        return max(0, min(end, self._end) - max(begin, self._begin))


def _free(item: ThreadSpan, inner: list[ThreadSpan]) -> list[tuple[int, int]]:
    """What its children leave of an item."""
    found, since = [], item.begin
    for child in inner:
        if child.begin > since:
            found.append((since, child.begin))
        since = max(since, child.end)
    if item.end > since:
        found.append((since, item.end))
    return found


def united(stretches: Iterable[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Stretches in order of their begins, with those as one that are no more than a gap apart."""
    found: list[tuple[int, int]] = []
    for begin, end in stretches:
        if found and begin <= found[-1][1] + gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def common(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What two lists of stretches have in common; each is in order and free of overlaps."""
    place = 0
    for begin, end in some:
        while place < len(others) and others[place][1] <= begin:
            place += 1
        at = place
        while at < len(others) and others[at][0] < end:
            yield max(begin, others[at][0]), min(end, others[at][1])
            at += 1
