"""A picture of time: a lane for each rank and device thread, as SVG.

What is in it is bounded by its width, not by the recording: no two blocks of a lane begin within
half a pixel. Of many ranks, those whose work differs most from that of the others have lanes of
their own; of the others, the ones with the least, the median and the most work represent all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.errors import AgvizError
from agviz.export import svg
from agviz.export.palette import LIGHT
from agviz.export.swim import CELL, Swimming
from agviz.export.text import DASH, plain, shorten
from agviz.graph.swim_lanes import swim_lanes
from agviz.ranks.phases import Phase, Phases
from agviz.ranks.slow import rank_work
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.export.palette import Theme
    from agviz.ranks.phases import Stretch
    from agviz.ranks.run import Run
    from agviz.ranks.slow import SlowNode
    from agviz.traces.reader import Trace

COLOURS: Final = {
    Phase.FORWARD: "#56B4E9",
    Phase.BACKWARD: "#0072B2",
    Phase.WAITING: "#E69F00",
    Phase.TRANSFER: "#CC79A7",
    Phase.BETWEEN: "#B5B5B5",
}
_INK: Final = {Phase.BACKWARD: "#FFFFFF"}
"""Of the words in a block, where it is not black."""
_LEFT: Final = 170
_LANE: Final = 30
_LABELS: Final = 15
_GAP: Final = 8
_MOST_LANES: Final = 12
_MOST_PASSES: Final = 6
_SLOWEST: Final = 3
"""Named in each lane at most."""
_WORTH_NAMING: Final = 0.03
"""Of the time that is shown, so much at least."""


class _Lane(NamedTuple):
    number: int
    label: str
    note: str
    stretches: Sequence[Stretch]
    slow: Sequence[SlowNode]
    """The longest first."""
    threads: Swimming

    @property
    def who(self) -> str:
        """The rank, also where it represents others."""
        return self.note if self.label in {"min", "median", "max"} else self.label

    @property
    def height(self) -> float:
        return _LANE + _LABELS + self.threads.height + _GAP


class TimePicture:
    """The picture of some passes of a run.

    Args:
        run: the ranks.
        ordinal: the pass to be drawn; None: all where they are few, else those around the one with
            the longest wait.
        theme: the colours of paper and ink.

    Raises:
        agviz.errors.AgvizError: there is no pass, or not this one.
    """

    def __init__(self, run: Run, ordinal: int | None = None, theme: Theme = LIGHT) -> None:
        self._run, self._theme = run, theme
        self._phases = phases = Phases(run)
        if not phases.passes:
            raise AgvizError("there is no backward pass to draw")
        if ordinal is not None and not 0 <= ordinal < phases.passes:
            raise AgvizError(
                f"there is no backward pass {ordinal}, but {phases.passes:,} from 0 on"
            )
        self._first, self._last = self._passes(ordinal)
        self._begin, self._end = phases.span(self._first, self._last)
        self._choice = phases.choose(_MOST_LANES, self._first, self._last)
        self._alignments = phases.alignments(self._first, self._last)
        self.notes = tuple(self._notes(ordinal))
        """What is not in the picture, in sentences."""

    def pieces(self) -> Iterator[str]:
        """The picture, piece by piece, in ASCII.

        Raises:
            agviz.errors.TraceError: a file is damaged.
        """
        yield from svg.ascii_only(self._drawn([*self._lanes()]))

    # -- what is drawn ----------------------------------------------------------------------------

    def _passes(self, ordinal: int | None) -> tuple[int, int]:
        count = self._phases.passes
        if ordinal is not None:
            return ordinal, ordinal
        if count <= _MOST_PASSES:
            return 0, count - 1
        worst = max(
            self._run.meetings(),
            key=lambda meeting: meeting.lateness_ns if meeting.is_inside else -1,
            default=None,
        )
        first = 0 if worst is None else max(0, worst.ordinal - _MOST_PASSES // 2 + 1)
        first = min(first, count - _MOST_PASSES)
        return first, first + _MOST_PASSES - 1

    def _notes(self, ordinal: int | None) -> Iterator[str]:
        count = self._phases.passes
        if ordinal is None and count > _MOST_PASSES:
            yield (
                f"drew passes {self._first:,} to {self._last:,} of {count:,}, around the longest"
                " wait; --graph-task N draws pass N"
            )
        if self._choice.folded:
            yield (
                f"{len(self._choice.folded):,} of {len(self._run.ranks):,} ranks are alike; three"
                " represent them"
            )
        if self._run.folder.path.is_dir() and (missing := self._run.folder.missing):
            named = ", ".join(map(str, missing[:9])) + (", …" if len(missing) > 9 else "")
            yield f"there is no trace of {plural(len(missing), 'rank')}: {named}"

    def _lanes(self) -> Iterator[_Lane]:
        choice = self._choice
        for number in choice.shown:
            is_rank = self._run.ranks[number].file.meta.rank is not None
            yield self._lane(number, f"rank {number}" if is_rank else "process", "")
        for word, number in choice.samples:
            yield self._lane(number, word, f"rank {number}")

    def _lane(self, number: int, label: str, note: str) -> _Lane:
        passes = self._first, self._last
        with self._run.folder.trace(number) as trace:
            slow = rank_work(self._phases, number, trace, passes, most=_SLOWEST * 4, gap_ns=0).slow
            threads = self._threads(number, trace)
        meta = self._run.ranks[number].file.meta
        if not note:
            note = f"{meta.pid}" if meta.rank is None else meta.rank.host
        clock = self._run.clocks[number]
        if clock.error_ns is None:
            note += " (by wall clock)"
        elif clock.error_ns:
            note += f" (±{duration(clock.error_ns)})"
        stretches = self._phases.stretches(number, *passes)
        return _Lane(number, label, shorten(plain(note), 24), stretches, slow, threads)

    def _threads(self, number: int, trace: Trace) -> Swimming:
        passes = self._run.ranks[number].passes[self._first : self._last + 1]
        offset = self._run.clocks[number].offset_ns
        lanes = swim_lanes(
            trace,
            [one.graph_task for one in passes],
            (svg.WIDTH - _LEFT - svg.RIGHT) // CELL,
            window=(self._begin - offset, self._end - offset),
            has_cuts=False,
        )
        zero = trace.meta.start_ns + offset
        return Swimming(
            lanes, self._theme, lambda time: self._x(zero + time), svg.WIDTH - svg.RIGHT
        )

    # -- how it is drawn --------------------------------------------------------------------------

    def _x(self, time_ns: float) -> float:
        share = (time_ns - self._begin) / max(1, self._end - self._begin)
        return _LEFT + share * (svg.WIDTH - _LEFT - svg.RIGHT)

    def _drawn(self, lanes: Sequence[_Lane]) -> Iterator[str]:
        choice, theme = self._choice, self._theme
        top = 118.0
        band = 30.0 if choice.folded else 0.0
        height = top + sum(lane.height for lane in lanes) + band + 20
        yield svg.opening(svg.WIDTH, height, theme)
        yield _PATTERNS
        yield from self._heading()
        y, bottom = top, height - 16
        across = _LEFT, svg.WIDTH - svg.RIGHT
        yield from svg.axis((0, self._end - self._begin), across, (top - 26, bottom), theme)
        for place, lane in enumerate(lanes):
            if choice.folded and place == len(choice.shown):
                yield from self._band(y, bottom)
                y += band
            yield from self._drawn_lane(lane, y)
            y += lane.height
        yield from self._aligned(top, bottom)
        yield "</svg>\n"

    def _heading(self) -> Iterator[str]:
        run, theme = self._run, self._theme
        meta = run.folder.ranks[0].meta
        ranks = plural(len(run.ranks), "rank") + ", " if len(run.ranks) > 1 else ""
        passes = f"passes {self._first:,} to {self._last:,}"
        if self._first == self._last:
            passes = f"pass {self._first:,}"
        title = f"{shorten(plain(meta.script or 'python'))}: {ranks}{passes}"
        title += f" of {self._phases.passes:,}, {duration(self._end - self._begin)}"
        yield svg.words(16, 26, title, 'font-size="15" font-weight="bold"')
        x = 16.0
        for phase in Phase:
            yield _block(x, 40, 22, 14, phase, "")
            yield svg.words(x + 28, 51, str(phase), "")
            x += 28 + len(phase) * svg.CHARACTER + 24
        if self._alignments:
            yield _line(x + 4, 38, 56, theme.ink)
            yield svg.words(x + 12, 51, "all ranks have joined a collective", "")
            x += 12 + 34 * svg.CHARACTER + 24
        yield _bracket(x, x + 22, 51, theme.alarm)
        yield svg.words(x + 28, 51, "a slow node, and its own time", "")

    def _band(self, y: float, bottom: float) -> Iterator[str]:
        theme = self._theme
        yield (
            f'<rect x="6" y="{y:.1f}" width="{svg.WIDTH - 12}" height="{bottom - y:.1f}" rx="4"'
            f' fill="none" stroke="{theme.frame}"/>\n'
        )
        numbers = self._choice.folded
        said = f"the other {len(numbers):,} ranks ({_ranges(numbers)})"
        yield svg.words(16, y + 18, f"{shorten(said, 110)}, by how long each worked itself", "")

    def _drawn_lane(self, lane: _Lane, y: float) -> Iterator[str]:
        theme = self._theme
        yield svg.words(16, y + 13, lane.label, 'font-size="13" font-weight="bold"')
        yield svg.words(16, y + 27, lane.note, f'fill="{theme.faint}" font-size="10"')
        last = -1.0
        for stretch in lane.stretches:
            begin = max(self._x(stretch.begin_ns), float(_LEFT))
            end = min(self._x(stretch.end_ns), float(svg.WIDTH - svg.RIGHT))
            if end <= begin or (end - begin < 0.5 and begin - last < 0.5):
                continue
            last = begin
            width = max(end - begin, 0.5)
            yield _block(begin, y, width, _LANE, stretch.phase, self._about(lane, stretch))
            yield from self._word(lane.number, stretch, begin, width, y)
        yield from self._slow(lane.slow, y + _LANE)
        yield from lane.threads.pieces(y + _LANE + _LABELS)

    def _about(self, lane: _Lane, stretch: Stretch) -> str:
        text = f"{lane.who}: {stretch.phase} {duration(stretch.end_ns - stretch.begin_ns)}"
        if stretch.key is None:
            return f"{text}, pass {stretch.ordinal}"
        meeting = self._phases.meeting(stretch.key)
        who = ""
        if meeting is not None and meeting.last != lane.number:
            who = f" for rank {meeting.last}"
        return f"{text}{who}, collective {stretch.key[2]} of group {stretch.key[0]}"

    def _word(
        self, number: int, stretch: Stretch, x: float, width: float, y: float
    ) -> Iterator[str]:
        words = [str(stretch.phase)]
        if stretch.phase is Phase.WAITING and stretch.key is not None:
            meeting = self._phases.meeting(stretch.key)
            if meeting is not None and meeting.last != number:
                words.insert(0, f"waiting for rank {meeting.last}")
        time = duration(stretch.end_ns - stretch.begin_ns)
        for text in (*(f"{word}, {time}" for word in words), *words):
            if len(text) * svg.CHARACTER + 8 < width:
                ink = _INK.get(stretch.phase, "#000000")
                halo = ""
                if stretch.phase in {Phase.WAITING, Phase.TRANSFER}:
                    halo = (
                        f' stroke="{COLOURS[stretch.phase]}" stroke-width="4" paint-order="stroke"'
                    )
                style = f'text-anchor="middle" fill="{ink}"{halo}'
                yield svg.words(x + width / 2, y + 19, text, style)
                return

    def _slow(self, nodes: Sequence[SlowNode], y: float) -> Iterator[str]:
        """Their names below the lane, the slowest first as far as there is room."""
        least = (self._end - self._begin) * _WORTH_NAMING
        taken: list[tuple[float, float]] = []
        for node in nodes:
            if node.busy_ns < least or len(taken) == _SLOWEST * (self._last - self._first + 1):
                break
            where = f" {node.module}" if node.module else ""
            text = f"{shorten(node.name, 28)}{shorten(where, 24)} {duration(node.busy_ns)}"
            begin, end = self._x(node.begin_ns), self._x(node.end_ns)
            until = begin + len(text) * svg.CHARACTER + 10
            begin_text = begin
            if until > svg.WIDTH - 4:
                begin_text, until = begin - (until - svg.WIDTH + 4), svg.WIDTH - 4.0
            if any(begin_text < right and left < until for left, right in taken):
                continue
            taken.append((begin_text, until))
            yield _bracket(begin, max(end, begin + 1), y, self._theme.alarm)
            yield svg.words(begin_text, y + 14, text, f'fill="{self._theme.ink}" font-size="10"')

    def _aligned(self, top: float, bottom: float) -> Iterator[str]:
        free = float(_LEFT)
        last = -10.0
        for one in self._alignments:
            x = self._x(one.time_ns)
            if not _LEFT <= x <= svg.WIDTH - svg.RIGHT or x - last < 2:
                continue
            last = x
            yield _line(x, top - 8, bottom, self._theme.ink)
            label = f"{one.operation} {one.meeting.key[2]}"
            half = len(label) * svg.CHARACTER / 2
            if x - half > free and x + half < svg.WIDTH:
                yield svg.words(x, top - 11, label, 'text-anchor="middle" font-size="10"')
                free = x + half + 6


_PATTERNS: Final = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
    f' patternTransform="rotate(45)"><rect width="6" height="6" fill="{COLOURS[Phase.WAITING]}"/>'
    '<rect width="1.5" height="6" fill="#000000" opacity="0.35"/></pattern>'
    '<pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse">'
    f'<rect width="5" height="5" fill="{COLOURS[Phase.TRANSFER]}"/>'
    '<circle cx="2.5" cy="2.5" r="1" fill="#000000" opacity="0.45"/></pattern></defs>\n'
)
_FILLS: Final = COLOURS | {Phase.WAITING: "url(#hatch)", Phase.TRANSFER: "url(#dots)"}


def _block(x: float, y: float, width: float, height: float, phase: Phase, about: str) -> str:
    top, high = (y + height / 3, height / 3) if phase is Phase.BETWEEN else (y, height)
    kind = str(phase).split(" ", 1)[0]
    return svg.rect(x, top, width, high, _FILLS[phase], about, f' class="{kind}"')


def _line(x: float, top: float, bottom: float, ink: str) -> str:
    return (
        f'<line class="alignment" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"'
        f' stroke="{ink}" stroke-width="1" stroke-dasharray="4 3"/>\n'
    )


def _bracket(begin: float, end: float, y: float, colour: str) -> str:
    return (
        f'<path d="M{begin:.1f} {y:.1f}v4H{end:.1f}v-4" fill="none" stroke="{colour}"'
        ' stroke-width="2"/>\n'
    )


def _ranges(numbers: Sequence[int]) -> str:
    """``0-3, 5``."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1] = parts[-1][0], number
        else:
            parts.append((number, number))
    return ", ".join(f"{a}" if a == b else f"{a}{DASH}{b}" for a, b in parts)
