"""Arranging: which panels are shown, how large, and which has the focus."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Static

from agviz.tui.board import Board
from agviz.tui.hints import Hints
from agviz.tui.panels.events import Events
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.inspector import Inspector
from agviz.tui.panels.panel import Panel, Panels
from agviz.tui.panels.queues import Queues
from agviz.tui.panels.threads import Threads
from agviz.tui.prompt import Prompt
from agviz.tui.title import PanelTab, Status, Title

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

PANELS: tuple[type[Panel], ...] = (Threads, GraphPanel, Events, Inspector, Queues)
_LEAST_THREADS, _MOST_THREADS = 5, 12


class Arranging(Board):
    """Title, panels, status and footer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "panel(1)", "Next panel", show=False, id="panel.next"),
        Binding("shift+tab", "panel(-1)", "Previous panel", show=False, id="panel.previous"),
        *(
            Binding(
                str(number),
                f"show_panel('{panel.HEADING.lower()}')",
                f"{panel.HEADING} panel",
                show=False,
                id=f"panel.{panel.HEADING.lower()}",
            )
            for number, panel in enumerate(PANELS, start=1)
        ),
    ]

    PANELS: ClassVar[tuple[type[Panel], ...]] = PANELS
    """Kinds of panels, in their order."""

    def compose(self) -> ComposeResult:
        """Title, panels, status and footer."""
        yield Title(id="title")
        with Horizontal(id="tabs"):
            for number, panel in enumerate(self.PANELS, start=1):
                yield PanelTab(number, panel.HEADING.lower(), panel.HEADING)
        yield Static("Reading the trace …", id="notice", markup=False)
        with Panels(id="panels"):
            for panel in self.PANELS:
                yield panel(id=panel.HEADING.lower())
        yield Status(id="status")
        yield Prompt(self.complete, id="prompt")
        yield Hints(id="hints")

    def on_mount(self) -> None:
        """Begin with the graph, once there is one."""
        self._choose("graph")

    def on_panel_tab_chosen(self, message: PanelTab.Chosen) -> None:
        """Show a panel."""
        self.action_show_panel(message.panel)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The focused panel is the one that a small screen shows."""
        if isinstance(event.widget, Panel) and event.widget.id:
            self._choose(event.widget.id)

    def on_resize(self) -> None:
        """Share out the room."""
        self.share_room()

    def action_panel(self, by: int) -> None:
        """Show and focus the next or previous panel."""
        names = [panel.HEADING.lower() for panel in self.PANELS]
        current = self.focused_panel.id if self.focused_panel else None
        index = names.index(current) if current in names else -by
        self.action_show_panel(names[(index + by) % len(names)])

    def action_show_panel(self, panel: str) -> None:
        """Show and focus a panel."""
        if self.view is not None:
            self._choose(panel)
            self.focus_chosen()

    def say(self, text: str) -> None:
        """Show ``text`` in place of the panels, while there is nothing to show in them."""
        self.query_one("#notice", Static).update(text)

    def focus_chosen(self) -> None:
        """Focus the panel that a small screen shows."""
        self.set_focus(self.query_one("Panel.-chosen", Panel))

    def share_room(self) -> None:
        """Give the lanes the room they need and no more."""
        if self.view is None:
            return
        panels = self.query_one("#panels")
        lanes = len(self.view.threads)
        wide = self.has_class("-wide")
        height = min(max(lanes * (2 if wide else 1) + 3, _LEAST_THREADS), _MOST_THREADS)
        panels.styles.grid_rows = f"{height} {'3fr 2fr' if wide else '1fr 1fr'}"

    def _choose(self, name: str) -> None:
        """Make a panel the one that a small screen shows."""
        for panel in self.query(Panel):
            panel.set_class(panel.id == name, "-chosen")
        for tab in self.query(PanelTab):
            tab.set_class(tab.id == f"tab-{name}", "-chosen")
