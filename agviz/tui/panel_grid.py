"""The grid of the panels of a trace, whose inner borders the mouse moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from textual.message import Message

from agviz.tui.panels.panel import Panel, Panels

if TYPE_CHECKING:
    from textual import events

    from agviz.tui.shares import Axis

_BORDER: Final = {"columns": 2, "rows": 1}
"""Cells before an edge that belong to the border: two panels have a gutter between them."""


class _Border(NamedTuple):
    """A border under the mouse."""

    axis: Axis
    place: int
    off: int
    """Cells from the mouse to the edge."""


class PanelGrid(Panels):
    """Panels in columns and rows."""

    class BorderMoved(Message):
        """The user wants an edge elsewhere."""

        def __init__(self, axis: Axis, place: int, to: int) -> None:
            super().__init__()
            self.axis = axis
            self.place = place
            self.to = to

    class BorderLeft(Message):
        """The user has let go of an edge."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._held: _Border | None = None

    def edges(self, axis: Axis) -> list[int]:
        """Where columns or rows begin on the screen, and where the last one ends."""
        regions = [panel.region for panel in self.query(Panel) if panel.display]
        if axis == "columns":
            return [*sorted({region.x for region in regions}), self.region.right]
        return [*sorted({region.y for region in regions}), self.region.bottom]

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Take hold of the border under the mouse."""
        x, y = int(event.screen_x), int(event.screen_y)
        found = self._border_at("columns", x) or self._border_at("rows", y)
        if found is not None and event.widget is not None and not _is_content(event):
            self._held = found
            self.capture_mouse()
            event.stop()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move it."""
        if self._held is not None:
            axis, place, off = self._held
            at = event.screen_x if axis == "columns" else event.screen_y
            self.post_message(self.BorderMoved(axis, place, int(at) + off))

    def on_mouse_up(self) -> None:
        """Let go of it."""
        if self._held is not None:
            self._held = None
            self.release_mouse()
            self.post_message(self.BorderLeft())

    def _border_at(self, axis: Axis, at: int) -> _Border | None:
        edges = self.edges(axis)
        for place in range(1, len(edges) - 1):
            if edges[place] - _BORDER[axis] <= at <= edges[place]:
                return _Border(axis, place, edges[place] - at)
        return None


def _is_content(event: events.MouseDown) -> bool:
    """Whether the mouse is on what a panel shows, not on its border."""
    widget = event.widget
    return isinstance(widget, Panel) and event.get_content_offset(widget) is not None
