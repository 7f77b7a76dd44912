"""Figures of a pass by the line that made its nodes, read piece by piece."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.tui.highlighting import highlight_file
from agviz.tui.line_figures import LineFigures, PassFigures, SourceText

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.outline import Piece
    from agviz.traces.reader import Trace
    from agviz.tui.columns import OutlineColumns
    from agviz.tui.model import LoadedPass

_PIECE: Final = 400
_PIECE_S: Final = 0.02
"""One reads for so long at once: a key may wait behind it."""
_BETWEEN_NEWS_S: Final = 0.3


class FiguresRead(NamedTuple):
    """A step of the reading."""

    reading: PassReading
    figures: PassFigures | None
    """None: it is not worth the paint yet."""
    is_read: bool
    """Whether there is no more for now."""


class _Sum:
    """Figures of a line, which grow."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.rest: dict[int, None] = {}
        self.time_ns = 0
        self.norm: float | None = None
        self.is_bad = False
        self._known: LineFigures | None = None

    @property
    def figures(self) -> LineFigures:
        """As they are now."""
        if self._known is None:
            nodes = (*self.started, *self.rest)
            self._known = LineFigures(nodes, self.time_ns, self.norm, self.is_bad)
        return self._known

    def changed(self) -> None:
        """They are to be worked out anew."""
        self._known = None


class PassReading:
    """Figures of one pass, as far as they were read. Used on the reader thread only.

    Args:
        trace: which holds it.
        recording: the pass.
    """

    def __init__(self, trace: Trace, recording: LoadedPass) -> None:
        self.columns: OutlineColumns = recording.columns
        """Those of the pass, by which one knows it; they are not read here."""
        self._graph_task = recording.key.graph_task
        self._outline = trace.outline(self._graph_task)
        nodes = self._outline.nodes
        self._sums: list[_Sum] = []
        self._places: dict[tuple[str, int], int] = {}
        """Of the sums, by file and line."""
        self._of = array("i", [-1]) * nodes
        """By node: the place of its sum; -1: none."""
        self._starts = array("q", bytes(8 * nodes))
        self._has_started = bytearray(nodes)
        self._until = trace.graph_task(self._graph_task).begin_seq - 1
        self._shown = 0.0

    def is_of(self, trace: Trace, recording: LoadedPass) -> bool:
        """Whether it is of this pass, and of as many nodes as that has now."""
        if recording.columns is not self.columns:
            return False
        return trace.graph_task(self._graph_task).nodes == self._outline.nodes

    def more(self, trace: Trace) -> FiguresRead:
        """Read on for a moment."""
        until = time.perf_counter() + _PIECE_S
        count = trace.event_count(self._graph_task)
        while True:
            piece = self._outline.more(_PIECE)
            self._add(trace, piece)
            is_read, now = piece.is_last, time.perf_counter()
            if is_read or now >= until:
                break
            time.sleep(0)  # so that the screen is painted meanwhile
        if not is_read and now - self._shown < _BETWEEN_NEWS_S:
            return FiguresRead(self, None, is_read=False)
        self._shown = now
        lines = {line: self._sums[place].figures for line, place in self._places.items()}
        figures = PassFigures(count, lines)
        return FiguresRead(self, figures, is_read)

    def _add(self, trace: Trace, piece: Piece) -> None:
        self._describe(trace, piece)
        for _, start_ns, _, node in piece.started:
            self._starts[node], self._has_started[node] = start_ns, 1
            if (its := self._sum_of(node)) is not None:
                its.rest.pop(node, None)
                its.started.append(node)
        for _, node, end_ns, _ in piece.ended:
            if (its := self._sum_of(node)) is not None:
                its.time_ns += end_ns - self._starts[node]
        for _, node in piece.nonfinite:
            if (its := self._sum_of(node)) is not None:
                its.is_bad = True
        norms = trace.output_norms(self._graph_task, self._until, piece.until)
        self._until = max(self._until, piece.until)
        for node, norm in norms:
            if (its := self._sum_of(node)) is not None:
                its.norm = norm if its.norm is None else max(its.norm, norm)

    def _describe(self, trace: Trace, piece: Piece) -> None:
        new = [each.node for each in piece.described if not self._has_started[each.node]]
        for node, frame in trace.forward_lines(self._graph_task, new).items():
            place = self._places.setdefault((frame.file, frame.line), len(self._sums))
            if place == len(self._sums):
                self._sums.append(_Sum())
            self._of[node] = place
            self._sums[place].rest[node] = None
            self._sums[place].changed()

    def _sum_of(self, node: int) -> _Sum | None:
        """Where a node counts, which is about to change; None: no line of it is known."""
        place = self._of[node]
        if place < 0:
            return None
        self._sums[place].changed()
        return self._sums[place]


def read_figures(before: PassReading | None) -> Callable[[Trace, LoadedPass], FiguresRead]:
    """Read on; None: from the beginning."""

    def question(trace: Trace, recording: LoadedPass) -> FiguresRead:
        reading = before
        if reading is None or not reading.is_of(trace, recording):
            reading = PassReading(trace, recording)
        return reading.more(trace)

    return question


def read_text(file: str) -> Callable[[Trace, LoadedPass], SourceText]:
    """The text of a file of the program."""

    def question(trace: Trace, _recording: LoadedPass) -> SourceText:
        return SourceText(file, highlight_file(trace.source(file)))

    return question
