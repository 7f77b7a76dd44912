"""LineList: a panel of many lines, one of which the cursor is on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.reactive import var

from agviz.tui.panels.panel import Panel
from agviz.tui.text import Line, Span, plain

if TYPE_CHECKING:
    from textual import events

_LINES_AROUND = 3
"""Lines above and below the cursor that stay in sight."""


class LineList(Panel):
    """Lines ``0`` to ``line_count - 1``, of which only those on the screen are ever made.

    The cursor moves by keys and mouse; a subclass observes it in :meth:`cursor_moved`.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "cursor(1)", "Down", show=False, id="list.down"),
        Binding("k,up", "cursor(-1)", "Up", show=False, id="list.up"),
        Binding("g,home", "cursor_to(0)", "First line", show=False, id="list.first"),
        Binding("G,end", "cursor_to(-1)", "Last line", show=False, id="list.last"),
        Binding("pagedown,ctrl+d", "page(1)", "Page down", show=False, id="list.page-down"),
        Binding("pageup,ctrl+u", "page(-1)", "Page up", show=False, id="list.page-up"),
    ]

    EMPTY: ClassVar[str] = ""
    HAS_HEADER: ClassVar[bool] = False

    cursor: var[int] = var(0)
    line_count: var[int] = var(0)
    virtual_size = var(Size(0, 0))
    """Other than in a widget of Textual's, another one needs no new layout of the screen."""

    def line(self, index: int, width: int) -> Line:
        """Line ``index``, at most ``width`` cells wide."""
        raise NotImplementedError

    def header(self, width: int) -> Line:
        """Names of the columns, which stay when the lines scroll; if there are any."""
        raise NotImplementedError

    def cursor_moved(self) -> None:
        """The user moved the cursor."""

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """The header, a line or nothing."""
        width -= 1  # beside the scrollbar one cell stays blank
        if self.HAS_HEADER:
            if y == 0:
                return self.header(width), ""
            y -= 1
        index = y + self.scroll_offset.y
        if index >= self.line_count:
            text = self.EMPTY if self.line_count == 0 and y == 1 and self.view else ""
            return [Span(f" {text}", "muted")], ""
        background = ""
        if index == self.cursor:
            background = "cursor" if self.has_focus else "cursor-blurred"
        return self.line(index, width), background

    def copy_text(self) -> str:
        """The line under the cursor."""
        if not self.line_count:
            return ""
        return " ".join(plain(self.line(self.cursor, 400)).split())

    def put_cursor(self, index: int) -> None:
        """Move the cursor on behalf of the program: :meth:`cursor_moved` is not called."""
        self.cursor = index
        self._scroll_to_cursor()

    def _scroll_to_cursor(self) -> None:
        """Scroll as little as needed to have the cursor and lines around it on the screen."""
        height = self.scrollable_content_region.height - self.header_height
        around = min(_LINES_AROUND, max(0, height - 1) // 2)
        top = self.scroll_offset.y
        if self.cursor - around < top:
            self.scroll_to(y=self.cursor - around, animate=False, immediate=True)
        elif self.cursor + around >= top + height > top:
            self.scroll_to(y=self.cursor + around - height + 1, animate=False, immediate=True)

    @property
    def header_height(self) -> int:
        """Lines that don't scroll."""
        return int(self.HAS_HEADER)

    def validate_cursor(self, cursor: int) -> int:
        """Keep the cursor on a line."""
        return min(max(cursor, 0), max(self.line_count - 1, 0))

    def watch_line_count(self, count: int) -> None:
        """Let the scrollbar know."""
        self.virtual_size = Size(0, count + self.header_height)
        if self.is_attached:
            self.vertical_scrollbar.window_virtual_size = self.virtual_size.height
            self.scroll_y = self.validate_scroll_y(self.scroll_y)
        self.cursor = self.validate_cursor(self.cursor)
        self.redraw()

    def watch_cursor(self) -> None:
        """Move what marks it."""
        self.redraw()

    def watch_scroll_y(self, _old_value: float, new_value: float) -> None:
        """Move the scrollbar and the lines."""
        self.vertical_scrollbar.position = new_value
        self.redraw()

    def on_resize(self) -> None:
        """Keep the cursor on the screen."""
        self._scroll_to_cursor()

    def action_cursor(self, by: int) -> None:
        """Move the cursor ``by`` lines."""
        self._user_moves_to(self.cursor + by)

    def action_cursor_to(self, line: int) -> None:
        """Move the cursor to a line; -1 is the last one."""
        self._user_moves_to(self.line_count - 1 if line < 0 else line)

    def action_page(self, pages: int) -> None:
        """Move the cursor by screens."""
        height = max(1, self.scrollable_content_region.height - self.header_height - 1)
        self._user_moves_to(self.cursor + pages * height)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse points."""
        offset = event.get_content_offset(self)
        if offset is not None and offset.y >= self.header_height:
            index = offset.y - self.header_height + self.scroll_offset.y
            if index < self.line_count:
                self._user_moves_to(index)

    def _user_moves_to(self, index: int) -> None:
        before = self.cursor
        self.put_cursor(index)
        if self.cursor != before:
            self.cursor_moved()
