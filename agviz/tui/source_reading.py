"""Figures of a pass by the line that made its nodes and by module, read piece by piece."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from agviz.tui.highlighting import highlight_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agviz.traces.outline import Piece
    from agviz.traces.reader import Trace
    from agviz.tui.columns import OutlineColumns
    from agviz.tui.model import LoadedPass
    from agviz.tui.text import Line

_PIECE: Final = 400
_PIECE_S: Final = 0.02
"""One reads for so long at once: a key may wait behind it."""
_BETWEEN_NEWS_S: Final = 0.3

Module = tuple[str, ...]
"""Its path: ``("encoder", "layers", "0")``."""
T = TypeVar("T")


class Figures(NamedTuple):
    """What happened in a pass in the nodes of one line, or of one module."""

    nodes: tuple[int, ...]
    """In order of their executions; behind them those that have not run."""
    time_ns: int
    """From the start to the end of each, added up."""
    norm: float | None
    """The largest of what they put out, of gradients that are finite; None: not known."""
    is_bad: bool
    """Whether one of them put out something that is not finite."""


@dataclass(frozen=True, eq=False)
class PassFigures:
    """What is known of a pass by now."""

    event_count: int
    """Events of the pass when they were read."""
    lines: Mapping[tuple[str, int], Figures]
    """By file and line."""
    modules: Mapping[Module, Figures]
    """Without the modules inside; only those that have nodes themselves."""


class FiguresRead(NamedTuple):
    """A step of the reading."""

    reading: PassReading
    figures: PassFigures | None
    """None: it is not worth the paint yet."""
    is_read: bool
    """Whether there is no more for now."""


@dataclass(frozen=True, eq=False)
class SourceText:
    """The text of a file of the program."""

    file: str
    lines: Sequence[Line]
    """Empty: the trace does not hold it."""


class _Sum:
    """Figures that grow."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.rest: dict[int, None] = {}
        self.time_ns = 0
        self.norm: float | None = None
        self.is_bad = False
        self._known: Figures | None = None

    @property
    def figures(self) -> Figures:
        """As they are now."""
        if self._known is None:
            nodes = (*self.started, *self.rest)
            self._known = Figures(nodes, self.time_ns, self.norm, self.is_bad)
        return self._known

    def changed(self) -> None:
        """They are to be worked out anew."""
        self._known = None


class _Grouping(Generic[T]):
    """Sums by what nodes have in common.

    Args:
        nodes: how many there are.
    """

    def __init__(self, nodes: int) -> None:
        self._sums: list[_Sum] = []
        self._places: dict[T, int] = {}
        self._of = array("i", [-1]) * nodes
        """By node: its sum; -1: none."""

    def put(self, node: int, name: T) -> None:
        """Say what a node is of."""
        place = self._places.setdefault(name, len(self._sums))
        if place == len(self._sums):
            self._sums.append(_Sum())
        self._of[node] = place

    def sum_of(self, node: int) -> _Sum | None:
        """Where a node counts, which is about to change; None: nowhere."""
        place = self._of[node]
        if place < 0:
            return None
        self._sums[place].changed()
        return self._sums[place]

    def figures(self) -> dict[T, Figures]:
        """As they are now."""
        return {name: self._sums[place].figures for name, place in self._places.items()}


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
        self._lines: _Grouping[tuple[str, int]] = _Grouping(nodes)
        self._modules: _Grouping[Module] = _Grouping(nodes)
        self._starts = array("q", bytes(8 * nodes))
        self._has_started = bytearray(nodes)
        self._texts = {0: ""}
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
        figures = PassFigures(count, self._lines.figures(), self._modules.figures())
        return FiguresRead(self, figures, is_read)

    def _add(self, trace: Trace, piece: Piece) -> None:
        self._texts.update(piece.texts)
        self._describe(trace, piece)
        for _, start_ns, _, node in piece.started:
            self._starts[node], self._has_started[node] = start_ns, 1
            for its in self._sums(node):
                its.rest.pop(node, None)
                its.started.append(node)
        for _, node, end_ns, _ in piece.ended:
            for its in self._sums(node):
                its.time_ns += end_ns - self._starts[node]
        for _, node in piece.nonfinite:
            for its in self._sums(node):
                its.is_bad = True
        norms = trace.output_norms(self._graph_task, self._until, piece.until)
        self._until = max(self._until, piece.until)
        for node, norm in norms:
            for its in self._sums(node):
                its.norm = norm if its.norm is None else max(its.norm, norm)

    def _describe(self, trace: Trace, piece: Piece) -> None:
        new = [each for each in piece.described if not self._has_started[each.node]]
        frames = trace.frames(self._graph_task, [each.node for each in new])
        for each in new:
            node, frame = each.node, frames.get(each.node)
            if frame is not None:
                self._lines.put(node, (frame.file, frame.line))
            module = self._texts[each.module]
            module = module or self._texts[each.parameter].rpartition(".")[0]
            if module:
                self._modules.put(node, tuple(module.split(".")))
            for its in self._sums(node):
                its.rest[node] = None

    def _sums(self, node: int) -> list[_Sum]:
        """What changes with a node."""
        found = self._lines.sum_of(node), self._modules.sum_of(node)
        return [its for its in found if its is not None]


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
