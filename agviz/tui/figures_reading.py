"""Figures of the pass that is shown, read piece by piece for a field of the view."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.reader import Trace
    from agviz.tui.board import Board
    from agviz.tui.columns import OutlineColumns
    from agviz.tui.model import LoadedPass

_PIECE_S: Final = 0.02
"""One reads for so long at once: a key may wait behind it."""
_BETWEEN_NEWS_S: Final = 0.3

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class PieceByPiece(Protocol[T_co]):
    """What reads a pass piece by piece."""

    def is_of(self, trace: Trace) -> bool:
        """Whether the pass has as many nodes now as when the reading began."""

    def read_on(self, trace: Trace, seconds: float) -> bool:
        """Read for about so long; return whether there is no more for now."""

    def shown(self, trace: Trace, event_count: int) -> T_co:
        """What a panel draws of it: known by now, of so many events."""


class FiguresRead(NamedTuple, Generic[T]):
    """A step of the reading."""

    reading: _Reading[T]
    figures: T | None
    """None: it is not worth the paint yet."""
    is_read: bool
    """Whether there is no more for now."""


class _Reading(Generic[T]):
    """Figures of one pass, as far as they were read. Used on the reader thread only."""

    def __init__(self, recording: LoadedPass, pieces: PieceByPiece[T]) -> None:
        self.columns: OutlineColumns = recording.columns
        """Those of the pass, by which one knows it; they are not read here."""
        self._graph_task = recording.key.graph_task
        self._pieces = pieces
        self._shown = 0.0

    def is_of(self, trace: Trace, recording: LoadedPass) -> bool:
        """Whether it is of this pass, and of as many nodes as that has now."""
        return recording.columns is self.columns and self._pieces.is_of(trace)

    def more(self, trace: Trace) -> FiguresRead[T]:
        """Read on for a moment."""
        count = trace.event_count(self._graph_task)
        is_read = self._pieces.read_on(trace, _PIECE_S)
        now = time.perf_counter()
        if not is_read and now - self._shown < _BETWEEN_NEWS_S:
            return FiguresRead(self, None, is_read=False)
        self._shown = now
        return FiguresRead(self, self._pieces.shown(trace, count), is_read)


class FiguresQuestion(Generic[T]):
    """Asks the reader thread on behalf of a panel, and shows what it says.

    Args:
        board: of the screen.
        field: of the view, where it is shown.
        begin: begins to read a pass.
    """

    def __init__(
        self,
        board: Board,
        field: Literal["figures", "modules"],
        begin: Callable[[Trace, int], PieceByPiece[T]],
    ) -> None:
        self._board = board
        self._field = field
        self._begin = begin
        self._reading: _Reading[T] | None = None
        self._asked: tuple[OutlineColumns, int] | None = None
        """The pass, and its number of events, for which an answer is on the way."""

    def want(self) -> None:
        """Have them read, unless they have been meanwhile."""
        if self._board.shown.lacks(self._field):
            self._ask()

    def _ask(self) -> None:
        recording = self._board.shown.recording
        asked = recording.columns, recording.event_count
        if self._asked is None or self._asked[0] is not asked[0] or self._asked[1] != asked[1]:
            self._asked = asked
            before = self._reading
            self._board.reader.ask(lambda trace, its: self._read(trace, its, before), self._take)

    def _read(
        self, trace: Trace, recording: LoadedPass, before: _Reading[T] | None
    ) -> FiguresRead[T]:
        """Read on; None: from the beginning. Called on the reader thread."""
        if before is None or not before.is_of(trace, recording):
            before = _Reading(recording, self._begin(trace, recording.key.graph_task))
        return before.more(trace)

    def _take(self, found: FiguresRead[T]) -> None:
        """Show them, and read on, unless another pass is shown by now."""
        self._reading, self._asked = found.reading, None
        view = self._board.view
        if view is None or view.recording.columns is not found.reading.columns:
            return
        if found.figures is not None:
            changed: dict[str, Any] = {self._field: found.figures}
            self._board.show(replace(view, **changed))
        if not found.is_read:
            self._ask()
