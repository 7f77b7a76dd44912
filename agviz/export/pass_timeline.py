"""A picture of one backward pass in time: a lane for each thread, modules over nodes, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.default_pass import default_pass, inside_of, outermost
from agviz.errors import AgvizError
from agviz.export import svg
from agviz.export.facts import CRITICAL, NON_FINITE
from agviz.export.legend import summary_of, title_of
from agviz.export.palette import LIGHT
from agviz.export.swim import CELL, HATCH, Swimming
from agviz.graph.cut import find_node
from agviz.graph.model import read_graph
from agviz.graph.swim_lanes import swim_lanes
from agviz.words.safe import clean
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.export.palette import Theme
    from agviz.graph.model import TaskGraph
    from agviz.traces.reader import Trace

LEFT: Final = 130
AROUND: Final = 20
"""Nodes before and after the one that is asked for."""
_HEADING: Final = 70.0
_AXIS: Final = 26.0
_CUTS: Final = 14.0
_BETWEEN: Final = 24.0


class PassTimeline:
    """The picture of a pass; the trace is read when it is made.

    Args:
        trace: where it is recorded.
        graph_task: its id; None: the one that is around what
            :func:`agviz.analysis.default_pass.default_pass` chooses.
        theme: the colours of paper and ink.
        around: draw the time of a node and what ran before and after it: its number in execution,
            or its name, module or parameter.
        depth: so many nodes before and after.

    Raises:
        agviz.errors.AgvizError: no node of it ran, or there is no such node.
        agviz.errors.TraceError: no such graph task, or the file is damaged.
    """

    def __init__(
        self,
        trace: Trace,
        graph_task: int | None = None,
        theme: Theme = LIGHT,
        *,
        around: str | int | None = None,
        depth: int = AROUND,
    ) -> None:
        known = trace.graph_tasks
        number = default_pass(trace) if graph_task is None else graph_task
        self.task = task = trace.graph_task(outermost(known, number))
        self._theme = theme
        window, where = None, ""
        if around is not None:
            window, where = _around(read_graph(trace, task.id), around, depth)
        self._lanes = swim_lanes(
            trace, [task.id], (svg.WIDTH - LEFT - svg.RIGHT) // CELL, window=window
        )
        if not self._lanes.lanes:
            raise AgvizError(f"no node of pass {task.id} ran: there is no time to draw")
        self._swimming = Swimming(self._lanes, theme, self._x, svg.WIDTH - svg.RIGHT)
        self._title = title_of(trace.meta.script, task)
        self._summary = summary_of(task, inside_of(known, task.id))
        self.notes = tuple(self._notes(trace, where, is_chosen=graph_task is None))
        """What is not in the picture, in sentences."""

    def pieces(self) -> Iterator[str]:
        """The picture, piece by piece, in ASCII."""
        yield from svg.ascii_only(self._drawn())

    def bare(self) -> str:
        """The same without its heading."""
        return "".join(svg.ascii_only(self._drawn(with_heading=False)))

    def places(self) -> list[list[float]]:
        """Moments in ns since the pass began, and where they are in the picture.

        Between two of them, time and place grow together; two at one place have a cut between them.
        """
        lanes = self._lanes
        found, cut = [[0.0, self._x(lanes.begin)]], 0
        for stop in lanes.picture.stops:
            since = stop.at - lanes.begin + cut
            cut += stop.took_ns
            found += [[since, self._x(stop.at)], [since + stop.took_ns, self._x(stop.at)]]
        return [*found, [lanes.end - lanes.begin + cut, self._x(lanes.end)]]

    def _notes(self, trace: Trace, where: str, *, is_chosen: bool) -> Iterator[str]:
        passes = sum(task.parent < 0 for task in trace.graph_tasks)
        if is_chosen and passes > 1:
            yield f"pass {self.task.id}, one of {passes:,}; --graph-task N draws another"
        if where:
            yield where
        if stops := self._lanes.picture.stops:
            total = duration(sum(stop.took_ns for stop in stops))
            yield f"{total} in which nothing ran, or a debugger held a thread, are cut out at ┆"
        arrows, crossed = len(self._swimming.arrows), self._lanes.crossed
        if arrows < crossed:
            yield f"{arrows:,} of {crossed:,} gradients between threads have arrows"
        if self._swimming.has_narrow:
            yield "modules too narrow to be read are left out; --around NODE shows a part"

    def _x(self, time_ns: float) -> float:
        begin, end = self._lanes.begin, self._lanes.end
        return LEFT + (time_ns - begin) / (end - begin) * (svg.WIDTH - LEFT - svg.RIGHT)

    def _drawn(self, *, with_heading: bool = True) -> Iterator[str]:
        stops = self._lanes.picture.stops
        top = _AXIS + (_HEADING if with_heading else 0.0) + (_CUTS if stops else 0.0)
        notes = self.notes if with_heading else ()
        height = top + self._swimming.height + 12 + 16 * len(notes)
        lanes, theme = self._lanes, self._theme
        yield svg.opening(svg.WIDTH, height, theme)
        yield HATCH
        if with_heading:
            yield from self._heading()
        bottom = top + self._swimming.height
        down = top - 14 - (_CUTS if stops else 0.0), bottom
        yield from svg.axis(
            (0, lanes.end - lanes.begin), (LEFT, svg.WIDTH - svg.RIGHT), down, theme
        )
        yield from self._swimming.pieces(top)
        free = 0.0
        for stop in stops:
            x, text = self._x(stop.at), f"┆ {duration(stop.took_ns)}"
            if x > free:
                yield svg.words(x - 3, top - 6, text)
                free = x + len(text) * svg.CHARACTER + 8
            yield (
                f'<line class="cut" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"'
                f' stroke="{theme.ink}" stroke-dasharray="2 3"/>\n'
            )
        for number, note in enumerate(notes):
            yield svg.words(16, bottom + 18 + 16 * number, note, f'fill="{theme.faint}"')
        yield "</svg>\n"

    def _heading(self) -> Iterator[str]:
        lanes, theme = self._lanes, self._theme
        yield svg.words(16, 26, self._title, 'font-size="15" font-weight="bold"')
        path = f"critical path {duration(lanes.critical_ns)}" if lanes.critical_ns else ""
        said = " · ".join(filter(None, [self._summary, path]))
        yield svg.words(16, 45, said, f'fill="{theme.faint}"')
        x, y = 16.0, 54.0
        look = theme.lane(0)
        waits = any(gap.is_waiting for gaps in lanes.gaps.values() for gap in gaps)
        for is_there, fill, edge, text in (
            (True, look.pale, theme.frame, "module"),
            (True, look.strong, theme.paper, "node, with its turn in execution"),
            (waits, "url(#waits)", theme.frame, "waiting for another thread"),
            (True, theme.shade, theme.frame, "no thread runs a node"),
        ):
            if not is_there:
                continue
            yield svg.rect(x, y, 22, 14, fill, "", f' stroke="{edge}" stroke-width="0.5"')
            yield svg.words(x + 28, y + 11, text)
            x += 28 + len(text) * svg.CHARACTER + _BETWEEN
        yield svg.rect(x, y + 6, 22, 3, theme.ink)
        text = f"{CRITICAL} critical path"
        yield svg.words(x + 28, y + 11, text)
        x += 28 + len(text) * svg.CHARACTER + _BETWEEN
        if lanes.nonfinite:
            yield svg.rect(x, y + 5, 22, 4, theme.alarm)
            text = f"{NON_FINITE} NaN or infinities"
            yield svg.words(x + 28, y + 11, text)
            x += 28 + len(text) * svg.CHARACTER + _BETWEEN
        if lanes.crossings:
            yield svg.words(x, y + 11, "→ gradient that another thread takes up")


def _around(graph: TaskGraph, wanted: str | int, depth: int) -> tuple[tuple[int, int], str]:
    """Begin and end of the time around a node, by ``time.monotonic_ns()``, and what that is."""
    centre = find_node(graph, wanted).row
    rows = [row for n in graph.nodes for row in (n.row, *(leaf.row for leaf in n.leaves))]
    ran = sorted(
        {(row.start_ns, row.end_ns, row.index) for row in rows if row.start_ns is not None}
    )
    name = f"{graph.turn(centre)} {centre.short_name}".lstrip()
    place = next((at for at, (*_, index) in enumerate(ran) if index == centre.index), None)
    if place is None:
        raise AgvizError(f"{clean(name)} did not run: no time is around it")
    shown = ran[max(0, place - depth) : place + depth + 1]
    begin, last = shown[0][0], max(end or begin for begin, end, _ in shown)
    return (begin, last), f"{plural(len(shown), 'node')} around {clean(name)}, of {len(ran):,}"
