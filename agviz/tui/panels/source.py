"""The file whose forward made the selected node, with what happened in backward per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.tui.editing import edit
from agviz.tui.highlighting import highlight
from agviz.tui.model import Mark
from agviz.tui.panels.line_list import LineList
from agviz.tui.text import Line, Span, right, tail
from agviz.words.units import duration

if TYPE_CHECKING:
    from agviz.analysis.pass_reading import NodeFigures
    from agviz.traces.rows import Frame
    from agviz.tui.line_figures import SourceText
    from agviz.tui.model import View

_ROOMY: Final = 72
"""With fewer cells, columns have short names and indentation is halved."""
_LEAST_TEXT: Final = 24
_NO_TEXT: Final = "The trace does not hold the text of this file, only this line:"


class _SourceWidths(NamedTuple):
    """Cells of the columns; 0: there is no such column."""

    number: int
    nodes: int
    norm: int
    time: int

    @property
    def gutter(self) -> int:
        """All of them, with marks and blanks."""
        return 5 + self.number + sum(width + 1 for width in self[1:] if width)


class SourcePanel(LineList):
    """One line per line of the file."""

    HEADING = "Source"
    DRAWS = ("recording", "selected", "story", "figures", "text", "marks", "line_marks")
    HAS_HEADER = True
    EMPTY = "No line of the program is known for this node."
    HELP = (
        "The file whose forward made the selected node, as it was when it was recorded; → is the"
        " line. In front of the lines is what happened in this backward pass in the nodes that"
        " each made: how many there are, the largest norm of the gradients that they put out, of"
        " those that are finite, the time that they took in all, and ! where one put out a gradient"
        " that is not finite.\n\n"
        "On a line that made nodes, the first of them is selected; enter selects the next one of"
        " the same line. e opens $VISUAL or $EDITOR there.\n\n"
        "In a live session b sets a breakpoint at the line, or removes it: ◆, ◈ (stops once),"
        " ▷ (log point), ◇ (switched off)."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next_node", "Next node of the line", show=False, id="source.next-node"),
        Binding("e", "edit", "Edit", id="source.edit"),
    ]

    class FiguresWanted(Message):
        """What happened by line was not read yet, or not all of it."""

    class TextWanted(Message):
        """A file of the program is to be shown that was not read yet."""

        def __init__(self, file: str) -> None:
            super().__init__()
            self.file = file

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._frame: Frame | None = None
        """Of the selected node, or of the last one that had any."""
        self._is_of_node = False
        """Whether it is of the selected one."""
        self._lines: list[tuple[int, Line]] = []
        """Number and text; 0: the line is none of the file."""
        self._node: int | None = None
        """The node on whose line the cursor was put."""
        self._own: int | None = None
        """The node that was chosen here last."""
        self._text: SourceText | None = None
        """What the lines were made of."""
        self._asked = ""
        """The file that was asked for last."""
        self._widths = _SourceWidths(1, 0, 0, 0)

    def take_over(self, view: View, before: View | None) -> None:
        """Draw the line of the selected node of ``view``, once that was read."""
        if not self.display:
            return
        is_new = before is None or not view.recording.is_same(before.recording)
        if is_new:
            self._node = self._own = None
        if before is not None and before.recording.key.file != view.recording.key.file:
            self._frame, self._text, self._lines, self._asked = None, None, [], ""
            self.line_count = 0
        if view.lacks("figures"):
            self.screen.post_message(self.FiguresWanted())
        if view.story is not None and view.story.node.index == view.selected:
            self._show_node(view, view.story.node.index)
        if is_new or before is None or before.figures is not view.figures:
            self._fit()

    def on_show(self) -> None:
        """Show what has become of the view meanwhile."""
        if self.view is not None:
            self._node = None
            self.take_over(self.view, self.view)

    def _show_node(self, view: View, node: int) -> None:
        """Show the line of a node that was read."""
        if view.story is None:
            return
        frame = view.story.node.frame
        self._is_of_node = frame is not None
        if frame is None:
            label = view.recording.label(node)
            self.subtitle(f"{label}: no line is known" if self._lines else "")
        else:
            text = view.text
            if text is None or text.file != frame.file:
                if self._asked != frame.file:
                    self._asked = frame.file
                    self.screen.post_message(self.TextWanted(frame.file))
                return
            self._asked, self._frame = "", frame
            if not text.lines:
                line = next((each.text for each in view.story.source if each.frame == frame), "")
                self._lines = [(0, [Span(_NO_TEXT, "muted")]), (frame.line, highlight(line))]
            elif text is not self._text:
                self._lines = [*enumerate(text.lines, start=1)]
            self._text = text
            self.line_count = len(self._lines)
            where = f"{frame.file}:{frame.line} in {frame.function}"
            self.subtitle(tail(where, min(len(where), max(10, self.inner_width - 4))))
            self._fit()
        if self._node != node:
            self._node = node
            if frame is not None and node != self._own:
                self.put_cursor(self._index_of(frame.line))
            self._own = None
        self.redraw()

    def _index_of(self, number: int) -> int:
        if self._lines and not self._lines[0][0]:
            return 1
        return number - 1

    def header(self, width: int) -> Line:
        """Names of the columns."""
        if not self._lines:
            return []
        widths = self._fitting(width)
        is_roomy = width >= _ROOMY
        text = f"  {right('line', widths.number)}  "
        if widths.nodes:
            text += f" {right('nodes' if is_roomy else 'n', widths.nodes)}"
        if widths.norm:
            text += f" {right('norm', widths.norm)}"
        if widths.time:
            text += f" {right('time', widths.time)}"
        return [Span(text, "muted")]

    def line(self, index: int, width: int) -> Line:
        """A line of the file, behind its figures."""
        number, text = self._lines[index]
        if not number:
            return [Span(" "), *text]
        frame, widths = self._frame, self._fitting(width)
        is_here = frame is not None and self._is_of_node and number == frame.line
        figures = self._figures_of(number)
        line = [
            Span("→" if is_here else " ", "playhead"),
            self._mark(number, figures),
            Span(right(str(number), widths.number), "number" if not is_here else "heading"),
            Span(" "),
            Span("!" if figures is not None and figures.is_bad else " ", "nonfinite"),
        ]
        cells = ("", "", "") if figures is None else _cells(figures)
        for cell, cells_wide in zip(cells, widths[1:], strict=True):
            if cells_wide:
                line.append(Span(f" {right(cell, cells_wide)}", "number"))
        line.append(Span(" "))
        return [*line, *(text if width >= _ROOMY else _halved(text))]

    def copy_text(self) -> str:
        """The line under the cursor, and where it is."""
        place, text = self.place, super().copy_text()
        return f"{place}  {text}" if place else text

    def cursor_moved(self) -> None:
        """The first node of the line is looked at, if it made any."""
        figures = self._figures_here()
        if figures is not None:
            self._choose(figures.nodes[0])

    def action_next_node(self) -> None:
        """Look at the next node of the line under the cursor."""
        figures = self._figures_here()
        if figures is None:
            self.notify("No node of this pass is known to be made by this line.")
            return
        nodes, selected = figures.nodes, self.shown.selected
        at = nodes.index(selected) if selected in nodes else -1
        self._choose(nodes[(at + 1) % len(nodes)])

    def action_edit(self) -> None:
        """Open the user's editor at the line under the cursor, or else at that of the node."""
        if self._frame is None:
            self.notify("There is no line here: select a node of which one is known.")
            return
        number = self._number_here() or self._frame.line
        said = edit(self.app, self._frame.file, number, self.shown.recording.path)
        if said:
            self.notify(said, severity="warning", markup=False)

    @property
    def place(self) -> str:
        """The line under the cursor, as a breakpoint has it: ``train.py:12``; empty: none."""
        number = self._number_here()
        return f"{self._frame.file}:{number}" if self._frame is not None and number else ""

    def _number_here(self) -> int:
        return self._lines[self.cursor][0] if self._lines else 0

    def _choose(self, node: int) -> None:
        self._own = node
        self.look_at_node(node)

    def _figures_here(self) -> NodeFigures | None:
        return self._figures_of(self._number_here())

    def _figures_of(self, number: int) -> NodeFigures | None:
        if self.view is None or self.view.figures is None or self._frame is None:
            return None
        return self.view.figures.lines.get((self._frame.file, number))

    def _mark(self, number: int, figures: NodeFigures | None) -> Span:
        """The breakpoint of a line or of nodes that it made, the one that says most."""
        view = self.shown
        here = {
            mark
            for written, mark in view.line_marks.items()
            if self._frame is not None and f"/{self._frame.file}:{number}".endswith(f"/{written}")
        }
        if figures is not None and view.marks:
            here |= {view.marks[node] for node in figures.nodes if node in view.marks}
        for mark in Mark:
            if mark in here:
                return Span(mark.glyph, "muted" if mark is Mark.DISABLED else "breakpoint")
        return Span(" ")

    def _fit(self) -> None:
        """Find how wide the columns of this file are."""
        if self.view is None or self._frame is None:
            return
        figures = {} if self.view.figures is None else self.view.figures.lines
        file = self._frame.file
        cells = [_cells(its) for (name, _), its in figures.items() if name == file]
        nodes, norm, time = (max((len(each[at]) for each in cells), default=0) for at in range(3))
        most = max((number for number, _ in self._lines), default=0)
        self._widths = _SourceWidths(
            max(4, len(str(most))), nodes, max(norm, 4) if norm else 0, max(time, 4) if time else 0
        )
        self.redraw()

    def _fitting(self, width: int) -> _SourceWidths:
        """The columns that there is room for."""
        widths = self._widths
        if width >= _ROOMY:
            return widths._replace(nodes=max(5, widths.nodes) if widths.nodes else 0)
        for without in ("nodes", "time", "norm"):
            if width - widths.gutter >= _LEAST_TEXT:
                break
            widths = widths._replace(**{without: 0})
        return widths


def _cells(figures: NodeFigures) -> tuple[str, str, str]:
    """Nodes, norm and time in words."""
    norm = "" if figures.norm is None else f"{figures.norm:.3g}"
    return f"{len(figures.nodes):,}", norm, duration(figures.time_ns) if figures.time_ns else ""


def _halved(text: Line) -> Line:
    """A line with half its indentation, where there is little room."""
    blank = 0
    for span in text:
        stripped = span.text.lstrip(" ")
        blank += len(span.text) - len(stripped)
        if stripped:
            break
    skip = blank - blank // 2
    for place, span in enumerate(text):
        if skip < len(span.text):
            return [span._replace(text=span.text[skip:]), *text[place + 1 :]]
        skip -= len(span.text)
    return []
