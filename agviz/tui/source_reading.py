"""What the panel of the source asks of the reader thread: figures by line, and texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agviz.analysis.pass_reading import PassReading, by_line
from agviz.tui.figures_reading import FiguresQuestion
from agviz.tui.highlighting import highlight_file
from agviz.tui.line_figures import PassFigures, SourceText

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.tui.board import Board
    from agviz.tui.model import LoadedPass


class LineReading(PassReading[tuple[str, int]]):
    """Figures of a pass by the line that made its nodes.

    Args:
        trace: which holds it.
        graph_task: the pass.
    """

    def __init__(self, trace: Trace, graph_task: int) -> None:
        super().__init__(trace, graph_task, by_line)

    def shown(self, _trace: Trace, event_count: int) -> PassFigures:
        """As the panel draws them."""
        return PassFigures(event_count, self.figures())


class SourceQuestions:
    """Asks the reader thread on behalf of the panel that shows lines.

    Args:
        board: of the screen.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self.figures = FiguresQuestion(board, "figures", LineReading)
        self._wanted = ""
        """The file that was asked for last."""

    def want_text(self, file: str) -> None:
        """Have a file of the program read."""
        self._wanted = file

        def question(trace: Trace, _recording: LoadedPass) -> SourceText:
            return SourceText(file, highlight_file(trace.source(file)))

        self._board.reader.ask(question, self._take_text)

    def _take_text(self, found: SourceText) -> None:
        view = self._board.view
        if view is not None and found.file == self._wanted:
            self._board.show(replace(view, text=found))
