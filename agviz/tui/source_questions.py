"""Has the figures of the pass and the text of the program read, and shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agviz.tui.source_reading import read_figures, read_text

if TYPE_CHECKING:
    from agviz.tui.board import Board
    from agviz.tui.columns import OutlineColumns
    from agviz.tui.line_figures import SourceText
    from agviz.tui.source_reading import FiguresRead, PassReading


class SourceQuestions:
    """Asks the reader thread on behalf of the panel that shows lines.

    Args:
        board: of the screen.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._reading: PassReading | None = None
        self._asked: tuple[OutlineColumns, int] | None = None
        """The pass, and its number of events, for which an answer is on the way."""
        self._wanted = ""
        """The file that was asked for last."""

    def want_figures(self) -> None:
        """Have them read, and read on."""
        recording = self._board.shown.recording
        asked = recording.columns, recording.event_count
        if self._asked is None or self._asked[0] is not asked[0] or self._asked[1] != asked[1]:
            self._asked = asked
            self._board.reader.ask(read_figures(self._reading), self._take_figures)

    def want_text(self, file: str) -> None:
        """Have a file of the program read."""
        self._wanted = file
        self._board.reader.ask(read_text(file), self._take_text)

    def _take_figures(self, found: FiguresRead) -> None:
        """Show them, and read on, unless another pass is shown by now."""
        self._reading, self._asked = found.reading, None
        view = self._board.view
        if view is None or view.recording.columns is not found.reading.columns:
            return
        if found.figures is not None:
            self._board.show(replace(view, figures=found.figures))
        if not found.is_read:
            self.want_figures()

    def _take_text(self, found: SourceText) -> None:
        view = self._board.view
        if view is not None and found.file == self._wanted:
            self._board.show(replace(view, text=found))
