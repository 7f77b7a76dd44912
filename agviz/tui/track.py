"""Finding executions and findings in a trace whose outline is being read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from agviz.traces.rows import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agviz.traces.outline import Outline, Piece
    from agviz.traces.reader import Trace

_PIECE: Final = 10_000


class TraceTrack:
    """A :class:`~agviz.tui.model.Track`; where it needs more of the outline, it reads it."""

    def __init__(self, trace: Trace, graph_task: int, outline: Outline) -> None:
        self.outline = outline
        self.is_known = False
        """Whether the outline was read to its end."""
        self._trace = trace
        self._graph_task = graph_task
        self._stops: list[int] = []
        self._until = -1
        self._pieces: list[Piece] = []

    @property
    def count(self) -> int:
        """Number of events."""
        return self._trace.event_count(self._graph_task)

    def locate(self, seq: int) -> int:
        """Number of events before the one with ``seq``."""
        return self._trace.position(seq, self._graph_task)

    def seq_at(self, offset: int) -> int:
        """``seq`` of the event at an offset."""
        return self._trace.events(self._graph_task, offset, 1)[0].seq

    def start(self, seq: int, count: int, thread: int | None) -> int | None:
        """The ``count``-th NodeStarted after ``seq``, before it where negative; None: no such."""
        return self._trace.start_near(self._graph_task, seq, count, thread)

    def stop(self, seq: int, count: int) -> int | None:
        """The same for failures and non-finite findings."""
        while True:
            stops = self._stops
            if count > 0:
                place = bisect_right(stops, seq) + count - 1
            else:
                place = bisect_left(stops, seq) + count
            enough = place < len(stops) if count > 0 else self._until >= seq
            if enough or self.is_known:
                return stops[place] if 0 <= place < len(stops) else None
            self.read(_PIECE)

    def read(self, limit: int) -> None:
        """Read a piece of the outline."""
        piece = self.outline.more(limit)
        failed = [ended.seq for ended in piece.ended if ended.status is NodeStatus.FAILED]
        found = [seq for seq, _ in piece.nonfinite]
        self.add_stops([*self._stops, *failed, *found], piece.until, is_last=piece.is_last)
        self._pieces.append(piece)

    def add_stops(self, stops: Iterable[int], until: int, *, is_last: bool) -> None:
        """Take over what is known already."""
        self._stops, self._until, self.is_known = sorted(stops), until, is_last

    def take(self) -> list[Piece]:
        """The pieces that were read and not yet taken."""
        pieces, self._pieces = self._pieces, []
        return pieces
