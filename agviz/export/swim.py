"""The threads of one process in a picture of time: modules over nodes, and what crosses threads."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.process_timeline import SpanKind, united
from agviz.export import svg
from agviz.export.facts import NON_FINITE
from agviz.words.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agviz.analysis.process_timeline import LaneRow, ProcessLane, RanSpan, ThreadSpan
    from agviz.export.palette import Theme
    from agviz.graph.swim_lanes import Crossing, SwimLanes

CELL: Final = 2
"""Pixels below which bars are not distinguished."""
_MODULE: Final = 17.0
_NODE: Final = 22.0
_BELOW: Final = 8.0
_LABELLED: Final = 30.0
"""A bar so wide has room for a word."""
_LEGIBLE: Final = 0.3
"""A row of modules is drawn where so much of what it shows is in such bars."""
_MOST_ARROWS: Final = 150
_SHADES: Final = 4
HATCH: Final = (
    '<defs><pattern id="waits" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><rect width="1.5" height="6" fill="#E69F00" opacity="0.7"/>'
    "</pattern></defs>\n"
)
"""Of waiting; to be set before the lanes."""


class _Row(NamedTuple):
    row: LaneRow
    top: float
    height: float
    has_nodes: bool


class Swimming:
    """Draws the lanes of a process.

    Args:
        lanes: what is drawn.
        theme: colours.
        x: where a time of the lanes' axis is.
        right: where the picture ends.
    """

    def __init__(
        self, lanes: SwimLanes, theme: Theme, x: Callable[[float], float], right: float
    ) -> None:
        self._lanes, self._theme, self._x, self._right = lanes, theme, x, right
        self._left = x(lanes.begin)
        self._rows: dict[int, list[_Row]] = {}
        self.height = 0.0
        """Of all threads."""
        by_thread = {lane.thread: lane for lane in lanes.picture.lanes}
        for thread in lanes.lanes:
            if thread in by_thread:
                self._rows[thread] = list(self._placed(by_thread[thread]))
                self.height += _BELOW
        self.has_narrow = any(
            row.bars and not self._is_legible(row)
            for lane in by_thread.values()
            for row in lane.rows[1:]
        )
        """Whether rows are not drawn, as nobody could read them."""

    @property
    def arrows(self) -> list[Crossing]:
        """The crossings that are drawn."""
        found = self._lanes.crossings
        if len(found) <= _MOST_ARROWS:
            return found
        every = -(-len(found) // _MOST_ARROWS)
        return [
            each
            for place, each in enumerate(found)
            if place % every == 0 or each.is_critical or each.is_nonfinite
        ]

    def pieces(self, y: float) -> Iterator[str]:
        """The lanes, with their upper end at ``y``."""
        for thread, rows in self._rows.items():
            yield from self._thread(thread, rows, y)
        for crossing in self.arrows:
            yield from self._arrow(crossing, y)
        yield from self._begin_of_nonfinite(y)

    # -- rows ------------------------------------------------------------------------------------

    def _placed(self, lane: ProcessLane) -> Iterator[_Row]:
        """The rows that are drawn; the uppermost is of passes and forwards, which are elsewhere."""
        for row in lane.rows[1:]:
            has_nodes = any(bar.kind is SpanKind.NODE for bar in row.bars) or not row.bars
            if (has_nodes and any(row.density)) or self._is_legible(row):
                height = _NODE if has_nodes else _MODULE
                yield _Row(row, self.height, height, has_nodes)
                self.height += height

    def _is_legible(self, row: LaneRow) -> bool:
        """Whether most of what a row shows can be labelled; nodes always count."""
        widths = [self._x(bar.end) - self._x(bar.begin) for bar in row.bars]
        if any(bar.kind is SpanKind.NODE for bar in row.bars):
            return True
        total = sum(widths) + sum(row.density) * CELL
        return sum(width for width in widths if width >= _LABELLED) > _LEGIBLE * total

    # -- drawing ---------------------------------------------------------------------------------

    def _thread(self, thread: int, rows: list[_Row], y: float) -> Iterator[str]:
        lane = self._lanes.lanes[thread]
        look = self._theme.lane(lane.position)
        main = self._main_row(rows)
        if main is None:
            return
        middle = y + main.top + main.height / 2
        style = f'text-anchor="end" fill="{self._theme.ink}"'
        yield svg.words(self._left - 10, middle + 4, f"{look.mark} {lane.name}", style)
        for gap in self._lanes.gaps.get(thread, ()):
            kind = "waits" if gap.is_waiting else "idle"
            time = duration(gap.end - gap.begin)
            word = "waiting for another thread" if gap.is_waiting else "no thread runs a node"
            fill = "url(#waits)" if gap.is_waiting else self._theme.shade
            box = self._box(gap.begin, gap.end)
            more = f' class="{kind}"'
            yield svg.rect(
                *box[:1],
                y + main.top,
                box[1],
                main.height,
                fill,
                f"{lane.name}: {word}, {time}",
                more,
            )
        for row in rows:
            yield from self._bars(row, look.strong, look.pale, y)
        yield from self._strip(
            self._lanes.critical, thread, y + main.top + main.height - 4, "critical"
        )
        yield from self._strip(self._lanes.nonfinite, thread, y + main.top, "nonfinite")

    @staticmethod
    def _main_row(rows: list[_Row]) -> _Row | None:
        """The one with the nodes of the outermost pass."""
        return next((row for row in rows if row.has_nodes), rows[0] if rows else None)

    def _box(self, begin: float, end: float) -> tuple[float, float]:
        """Where a stretch begins, and how wide it is, within the picture."""
        left, right = max(self._x(begin), self._left), min(self._x(end), self._right)
        return left, max(right - left, 0.5)

    def _bars(self, row: _Row, strong: str, pale: str, y: float) -> Iterator[str]:
        top, theme = y + row.top, self._theme
        yield from self._shades(row, strong, y)
        for bar in row.row.bars:
            x, width = self._box(bar.begin, bar.end)
            is_node = bar.kind is SpanKind.NODE
            kind = bar.kind.name.lower()
            edge = theme.paper if is_node else theme.frame
            place = f' data-node="{bar.graph_task}-{bar.node}"' if is_node else ""
            more = f' class="{kind}" stroke="{edge}" stroke-width="0.5"{place}'
            fill = strong if is_node else theme.shade if bar.kind is SpanKind.CALL else pale
            height = row.height if is_node else row.height - 1
            yield svg.rect(x, top, width, height, fill, self._about(bar), more)
            text = svg.fitting(self._names(bar), width)
            if text:
                style = f'fill="{theme.ink}" pointer-events="none"'
                yield svg.words(x + 3, top + height / 2 + 4, text, style)

    def _shades(self, row: _Row, fill: str, y: float) -> Iterator[str]:
        """What is too narrow for bars: the darker, the more of the time is taken."""
        levels = [round(share * _SHADES + 0.49) if share > 0.01 else 0 for share in row.row.density]
        at = 0
        for level, cells in groupby(levels):
            count = len(list(cells))
            if level:
                begin = self._lanes.begin + at * (self._lanes.end - self._lanes.begin) / len(levels)
                end = begin + count * (self._lanes.end - self._lanes.begin) / len(levels)
                x, width = self._box(begin, end)
                more = f' class="many" fill-opacity="{level / _SHADES:.2f}"'
                yield svg.rect(x, y + row.top, width, row.height, fill, "", more)
            at += count

    def _strip(self, spans: Iterable[RanSpan], thread: int, y: float, kind: str) -> Iterator[str]:
        """A line along some nodes of a thread."""
        slack = int((self._lanes.end - self._lanes.begin) / max(1.0, self._right - self._left))
        own = sorted(span[:2] for span in spans if span.thread == thread)
        fill = self._theme.alarm if kind == "nonfinite" else self._theme.ink
        height = 4.0 if kind == "nonfinite" else 3.0
        for begin, end in united(own, slack):
            x, width = self._box(begin, end)
            yield svg.rect(x, y, max(width, 1.0), height, fill, "", f' class="{kind}"')

    def _names(self, bar: ThreadSpan) -> tuple[str, ...]:
        """What a bar may say, from the longest to the shortest."""
        match bar.kind:
            case SpanKind.NODE:
                turn = self._lanes.turns.get((bar.graph_task, bar.node), "")
                short = bar.name.partition("Backward")[0] or bar.name
                return f"{turn} {bar.name}".lstrip(), f"{turn} {short}".lstrip(), turn
            case SpanKind.BACKWARD:
                return (f"pass {bar.graph_task}",)
            case SpanKind.STEP:
                return f"{bar.name}.step", bar.name
            case _:
                return bar.name, bar.name.rpartition(".")[2]

    def _about(self, bar: ThreadSpan) -> str:
        name = self._names(bar)[0]
        where = f", {bar.module}" if bar.module else ""
        return f"{name}{where}: {duration(bar.end - bar.begin)}"

    # -- what crosses threads --------------------------------------------------------------------

    def _row_of(self, thread: int, node: tuple[int, int]) -> _Row | None:
        rows = self._rows.get(thread, [])
        for row in rows:
            if row.has_nodes and any((bar.graph_task, bar.node) == node for bar in row.row.bars):
                return row
        return self._main_row(rows)

    def _arrow(self, crossing: Crossing, y: float) -> Iterator[str]:
        given, taken = crossing.given, crossing.taken
        tail = self._row_of(given.thread, crossing.producer)
        head = self._row_of(taken.thread, crossing.consumer)
        if tail is None or head is None:
            return
        x1, x2 = self._box(given.end, given.end)[0], self._box(taken.begin, taken.begin)[0]
        is_down = head.top > tail.top
        y1 = y + tail.top + (tail.height if is_down else 0)
        y2 = y + head.top + (0 if is_down else head.height)
        bend = (y2 - y1) * 0.5
        lanes, names = self._lanes, self._lanes.names
        colour = self._theme.faint
        if crossing.is_critical:
            colour = self._theme.ink
        if crossing.is_nonfinite:
            colour = self._theme.alarm
        width = 2.2 if crossing.is_critical or crossing.is_nonfinite else 1.1
        producer, consumer = (
            f"{lanes.turns[place]} {names[place]}"
            for place in (crossing.producer, crossing.consumer)
        )
        bad = f", {NON_FINITE} not finite" if crossing.is_nonfinite else ""
        tip = 6 if is_down else -6
        yield (
            f'<g class="crossing" stroke="{colour}" fill="{colour}">'
            f"{svg.title(f'{producer} → {consumer}{bad}')}"
            f'<path d="M{x1:.1f},{y1:.1f}C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f}'
            f' {x2:.1f},{y2 - tip:.1f}" fill="none" stroke-width="{width}"/>'
            f'<path d="M{x2 - 3.5:.1f},{y2 - tip:.1f}h7L{x2:.1f},{y2:.1f}z" stroke="none"/></g>\n'
        )

    def _begin_of_nonfinite(self, y: float) -> Iterator[str]:
        found = self._lanes.first_nonfinite
        row = None if found is None else self._row_of(found[1].thread, found[0])
        if found is None or row is None:
            return
        place, span = found
        x, alarm = self._box(span.begin, span.begin)[0], self._theme.alarm
        text = f"{NON_FINITE} first: {self._lanes.turns[place]} {self._lanes.names[place]}"
        top = y + row.top
        anchor = "end" if x + len(text) * svg.CHARACTER > self._right else "start"
        yield svg.rect(x - 1, top - 4, 3, row.height + 8, alarm, text)
        style = (
            f'text-anchor="{anchor}" fill="{alarm}" font-weight="bold" stroke="{self._theme.paper}"'
            ' stroke-width="3" paint-order="stroke"'
        )
        yield svg.words(x + (4 if anchor == "start" else -4), top + row.height + 11, text, style)
