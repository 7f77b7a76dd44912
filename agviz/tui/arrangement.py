"""Which panels are shown, how large, which has the focus, and where one types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Static

from agviz.tui.panels.events import Events
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.inspector import Inspector
from agviz.tui.panels.modules import ModulesPanel
from agviz.tui.panels.panel import Panel
from agviz.tui.panels.queues import Queues
from agviz.tui.panels.source import SourcePanel
from agviz.tui.panels.threads import Threads
from agviz.tui.prompt import Prompt
from agviz.tui.title import PanelTab, Status

if TYPE_CHECKING:
    from agviz.tui.board import Board

PANELS: tuple[type[Panel], ...] = (
    *(Threads, GraphPanel, Events, Inspector),
    *(Queues, SourcePanel, ModulesPanel),
)
"""Of every screen, in their order."""
_SHARED = (Queues, SourcePanel, ModulesPanel)
"""Where there is no room for all, one is in the place of the others."""
_SHARED_WIDE = (Queues, ModulesPanel)
"""The same on a wide screen, which has the source beside them."""
_LEAST_THREADS, _MOST_THREADS = 5, 12
_BELOW, _MANY_BELOW = 5, 8
"""Lines of the panels under the others."""
_TALL = 50
"""From so many lines on, there are many of them below."""


class Arrangement:
    """The panels of a screen and its prompt.

    Args:
        board: of the screen.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._screen = board.screen
        self.panels = PANELS
        """Kinds of panels, in their order; a driver may add to them before they are made."""
        self._prompted_from: Panel | None = None

    @property
    def focused(self) -> Panel | None:
        """The panel that has the focus."""
        focused = self._screen.focused
        return focused if isinstance(focused, Panel) else None

    def go_round(self, by: int) -> None:
        """Show and focus the next or previous panel."""
        names = [panel.HEADING.lower() for panel in self.panels]
        current = self.focused.id if self.focused else None
        index = names.index(current) if current in names else -by
        self.show_panel(names[(index + by) % len(names)])

    def show_panel(self, name: str) -> None:
        """Show and focus a panel."""
        if self._board.view is not None:
            self.choose(name)
            self.focus_chosen()

    def swap(self) -> None:
        """Show the next of the panels that share their place."""
        screen = self._screen
        is_alone = screen.has_class("-narrow") or screen.has_class("-low")
        shared = _SHARED_WIDE if screen.has_class("-wide") and not is_alone else _SHARED
        gone = next((each for each in shared if screen.has_class(_class_of(each))), shared[0])
        shown = shared[(shared.index(gone) + 1) % len(shared)]
        if is_alone or isinstance(self.focused, gone):
            self.show_panel(shown.HEADING.lower())
        else:
            self._share_place(shown)

    def show_besides(self, name: str) -> None:
        """Have a panel seen where there is room for one only; whoever types keeps the focus."""
        if not (self._screen.has_class("-narrow") or self._screen.has_class("-low")):
            return
        if self._screen.query_one(Prompt).is_open:
            self.choose(name)
            self._prompted_from = self._screen.query_one(f"#{name}", Panel)
        else:
            self.show_panel(name)

    def choose(self, name: str) -> None:
        """Make a panel the one that a small screen shows."""
        is_wide = self._screen.has_class("-wide")
        for shown in _SHARED_WIDE if is_wide else _SHARED:
            if name == shown.HEADING.lower():
                self._share_place(shown)
        for panel in self._screen.query(Panel):
            panel.set_class(panel.id == name, "-chosen")
        for tab in self._screen.query(PanelTab):
            tab.set_class(tab.id == f"tab-{name}", "-chosen")

    def _share_place(self, shown: type[Panel]) -> None:
        for panel in _SHARED:
            self._screen.set_class(panel is shown, _class_of(panel))

    def focus_chosen(self) -> None:
        """Focus the panel that a small screen shows."""
        self._screen.set_focus(self._screen.query_one("Panel.-chosen", Panel))

    def share_room(self) -> None:
        """Give the lanes the room they need and no more, and panels of a driver some lines."""
        view = self._board.view
        if view is None:
            return
        is_wide = self._screen.has_class("-wide")
        height = len(view.threads) * (2 if is_wide else 1) + 3
        rows = [str(min(max(height, _LEAST_THREADS), _MOST_THREADS))]
        rows += ["3fr", "2fr", "3fr"] if is_wide else ["1fr", "1fr"]
        if len(self.panels) > len(PANELS):
            rows.append(str(_MANY_BELOW if self._screen.size.height >= _TALL else _BELOW))
        self._screen.query_one("#panels").styles.grid_rows = " ".join(rows)

    def say(self, text: str) -> None:
        """Show ``text`` in place of the panels, while there is nothing to show in them."""
        self._screen.query_one("#notice", Static).update(text)

    def ask(self, kind: str, begin: str = "") -> None:
        """Open the prompt for a search, a command or Python that begins so."""
        self._prompted_from = self.focused
        self._screen.query_one(Status).add_class("-hidden")
        self._screen.query_one(Prompt).ask(kind, begin)

    def leave_prompt(self) -> None:
        """Go back to the panel from which the prompt was opened."""
        self._screen.query_one(Status).remove_class("-hidden")
        if self._prompted_from is not None:
            self._screen.set_focus(self._prompted_from)

    def copy(self) -> None:
        """Copy what the focused panel has selected."""
        text = self.focused.copy_text() if self.focused else ""
        if text:
            self._screen.app.copy_to_clipboard(text)
            self._screen.notify(f"Copied: {text}", timeout=3, markup=False)
        else:
            self._screen.notify("There is nothing to copy here.")


def _class_of(panel: type[Panel]) -> str:
    """Of the screen, while the panel has the place that it shares."""
    return f"-{panel.HEADING.lower()}"
