"""Questions that the timeline of a process asks of the reader thread, and their answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.process_timeline import ProcessTimeline, SpanKind
from agviz.tui.model import Key
from agviz.tui.reader_thread import Start
from agviz_engine.events import NodeStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.analysis.process_timeline import (
        NodeNeighbour,
        PartTimes,
        ProcessPicture,
        ThreadSpan,
    )
    from agviz.traces.reader import Trace
    from agviz.tui.model import LoadedPass

_PIECE_S: Final = 0.02
"""It is read for so long at once: a key may wait behind it."""


class TimelineRead(NamedTuple):
    """What is known by now, and a window of it."""

    timeline: ProcessTimeline
    window: tuple[int, int] | None
    """That was asked for; None: the pass that is open."""
    picture: ProcessPicture
    pass_span: tuple[int, int]
    """Of the pass that is open."""


class NeighboursRead(NamedTuple):
    """Producers and consumers of a node."""

    span: ThreadSpan
    neighbours: list[NodeNeighbour]


class SumsRead(NamedTuple):
    """A sum, or that it goes on."""

    sums: Iterator[PartTimes | None]
    found: PartTimes | None


def read_window(
    timeline: ProcessTimeline | None, window: tuple[int, int] | None, columns: int
) -> Callable[[Trace, LoadedPass], TimelineRead]:
    """Read on what can be seen in a window; None: the pass that is open."""

    def question(trace: Trace, recording: LoadedPass) -> TimelineRead:
        found = timeline
        if found is None or not found.is_current:
            found = ProcessTimeline(trace)
        span = found.pass_span(recording.key.graph_task)
        begin, end = span if window is None else window
        end = max(end, begin + 1)
        if not found.read_on(_PIECE_S):
            found.load(begin, end, columns, _PIECE_S)
        return TimelineRead(found, window, found.picture(begin, end, columns), span)

    return question


def read_neighbours(
    timeline: ProcessTimeline, span: ThreadSpan
) -> Callable[[Trace, LoadedPass], NeighboursRead]:
    """Find the producers and consumers of a node."""

    def question(_trace: Trace, _recording: LoadedPass) -> NeighboursRead:
        return NeighboursRead(span, timeline.neighbours(span.graph_task, span.node))

    return question


def sum_up(
    timeline: ProcessTimeline, sums: Iterator[PartTimes | None]
) -> Callable[[Trace, LoadedPass], SumsRead]:
    """Go on with a sum."""

    def question(_trace: Trace, _recording: LoadedPass) -> SumsRead:
        found: PartTimes | None = None
        until = time.perf_counter() + _PIECE_S
        if not timeline.read_on(_PIECE_S):
            for found in sums:
                if found is not None or time.perf_counter() >= until:
                    break
        return SumsRead(sums, found)

    return question


def place_of(span: ThreadSpan, file: int) -> Callable[[Trace, LoadedPass], Start]:
    """Where one sees a node, or a pass and its forward."""

    def question(trace: Trace, _recording: LoadedPass) -> Start:
        seqs: list[int] = []
        if span.kind is SpanKind.NODE:
            seqs = trace.seqs_where(span.graph_task, {NodeStarted}, node=span.node)
        return Start(Key(file, span.graph_task), seqs[0] if seqs else -1, "")

    return question
