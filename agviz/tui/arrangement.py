"""Which panels are shown, how large, which has the focus, and where one types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.widgets import Static

from agviz.tui.modes import ModeBar
from agviz.tui.panel_grid import PanelGrid
from agviz.tui.panels.events import Events
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.inspector import Inspector
from agviz.tui.panels.modules import ModulesPanel
from agviz.tui.panels.panel import Panel
from agviz.tui.panels.queues import Queues
from agviz.tui.panels.source import SourcePanel
from agviz.tui.panels.threads import Threads
from agviz.tui.prompt import Prompt
from agviz.tui.shares import LEAST, moved
from agviz.tui.title import PanelTab, Status

if TYPE_CHECKING:
    from agviz.tui.board import Board
    from agviz.tui.shares import Axis, Shares

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
_ALONE: Final = "-alone"
"""One panel at a time, though there is room for more."""
_ONE_AT_A_TIME: Final = (_ALONE, "-narrow", "-low")
_SOURCE: Final = "-mode-source"
"""The source with the graph and the inspector, and nothing else."""


class Arrangement:
    """The panels of a screen and its prompt.

    Args:
        board: of the screen.
        shares: how the user shared out the room before.
    """

    def __init__(self, board: Board, shares: Shares) -> None:
        self._board = board
        self._screen = board.screen
        self._shares = shares
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

    @property
    def shows_one(self) -> bool:
        """Whether one panel has all the room."""
        return any(self._screen.has_class(name) for name in _ONE_AT_A_TIME)

    def show_panel(self, name: str) -> None:
        """Show and focus a panel."""
        if self._board.view is not None:
            self.choose(name)
            if not self.shows_one and not self._screen.query_one(f"#{name}").display:
                self.show_pass()
            self.focus_chosen()

    def maximise(self) -> None:
        """Give the focused panel all the room, or let all have some again."""
        if self.focused is not None and self.focused.id:
            self.choose(self.focused.id)
        self._screen.toggle_class(_ALONE)
        self.share_room()

    def show_pass(self) -> None:
        """Show the panels of a pass."""
        self._screen.remove_class(_SOURCE)
        self._screen.query_one(ModeBar).show("Pass")
        self.share_room()

    def show_source(self) -> None:
        """Show the source beside the nodes that it made, and no other panel."""
        self._screen.add_class(_SOURCE)
        self._screen.query_one(ModeBar).show("Source")
        self.share_room()
        self.show_panel(SourcePanel.HEADING.lower())

    def move_border(self, axis: Axis, by: int) -> None:
        """Move the border behind the focused panel, or that before the last of them, by cells."""
        if self.focused is None or self.shows_one:
            return
        region, grid = self.focused.region, self._screen.query_one(PanelGrid)
        edges = grid.edges(axis)
        begin, end = (region.x, region.right) if axis == "columns" else (region.y, region.bottom)
        inner = range(1, len(edges) - 1)
        behind = [place for place in inner if edges[place] >= end]
        before = [place for place in inner if edges[place] <= begin]
        if behind or before:
            place = behind[0] if behind else before[-1]
            self.put_border(axis, place, edges[place] + by)
            self._shares.write()

    def put_border(self, axis: Axis, place: int, to: int) -> None:
        """Put the border behind so many columns or rows somewhere on the screen."""
        edges = self._screen.query_one(PanelGrid).edges(axis)
        if 0 < place < len(edges) - 1:
            self._shares.choose(self._name, axis, moved(edges, place, to, LEAST[axis]))
            self.share_room()

    def keep_borders(self) -> None:
        """Remember where they are."""
        self._shares.write()

    def forget_borders(self) -> None:
        """Share out the room as at first."""
        self._shares.forget(self._name)
        self._shares.write()
        self.share_room()

    def swap(self) -> None:
        """Show the next of the panels that share their place."""
        screen = self._screen
        shared = _SHARED_WIDE if screen.has_class("-wide") and not self.shows_one else _SHARED
        queues = screen.query_one(Queues)
        gone = next((each for each in shared if queues.has_class(_class_of(each))), shared[0])
        shown = shared[(shared.index(gone) + 1) % len(shared)]
        if self.shows_one or isinstance(self.focused, gone):
            self.show_panel(shown.HEADING.lower())
        else:
            self._share_place(shown)

    def yield_queues(self) -> None:
        """Have source or modules, where there are no device threads: queues hold little then."""
        self._share_place(ModulesPanel if self._screen.has_class("-wide") else SourcePanel)

    def show_besides(self, name: str) -> None:
        """Have a panel seen where there is room for one only; whoever types keeps the focus."""
        if not self.shows_one:
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
        is_seen = self.shows_one  # else styles are worked out once that has come about
        for panel in self._screen.query(Panel):
            panel.set_class(panel.id == name, "-chosen", update=is_seen)
        for tab in self._screen.query(PanelTab):
            tab.set_class(tab.id == f"tab-{name}", "-chosen", update=is_seen)

    def _share_place(self, shown: type[Panel]) -> None:
        # Not a class of the screen: styles of all that is on it would be worked out anew.
        for panel in map(self._screen.query_one, _SHARED):
            if not panel.has_class(_class_of(shown)):
                for each in _SHARED:
                    panel.set_class(each is shown, _class_of(each), update=False)
                panel.update_node_styles()

    def focus_chosen(self) -> None:
        """Focus the panel that a small screen shows."""
        self._screen.set_focus(self._screen.query_one("Panel.-chosen", Panel))

    @property
    def _name(self) -> str:
        """Of this way to arrange panels: each has borders of its own."""
        screen = self._screen
        parts = ["wide" if screen.has_class("-wide") else "normal"]
        if screen.has_class(_SOURCE):
            parts.append("source")
        if len(self.panels) > len(PANELS):
            parts.append("live")
        return "-".join(parts)

    def share_room(self) -> None:
        """Give the lanes the room they need and no more, and panels of a driver some lines.

        Where the user moved borders, these are where he put them.
        """
        view = self._board.view
        if view is None:
            return
        columns, rows = self._columns(), self._rows(len(view.threads))
        chosen = self._shares.of(self._name)
        if len(chosen.columns) == len(columns):
            columns = [f"{size}fr" for size in chosen.columns]
        if len(chosen.rows) == len(rows):
            rows = [
                f"{size}fr" if row.endswith("fr") else str(size)
                for row, size in zip(rows, chosen.rows, strict=True)
            ]
        styles = self._screen.query_one(PanelGrid).styles
        styles.grid_columns, styles.grid_rows = " ".join(columns), " ".join(rows)

    def _columns(self) -> list[str]:
        if not self._screen.has_class("-wide"):
            return ["1fr", "1fr"]
        return ["2fr", "3fr"] if self._screen.has_class(_SOURCE) else ["11fr", "11fr", "10fr"]

    def _rows(self, threads: int) -> list[str]:
        is_wide = self._screen.has_class("-wide")
        if self._screen.has_class(_SOURCE):
            rows = ["2fr", "3fr"]
        else:
            height = threads * (2 if is_wide else 1) + 3
            rows = [str(min(max(height, _LEAST_THREADS), _MOST_THREADS))]
            rows += ["3fr", "2fr", "3fr"] if is_wide else ["1fr", "1fr"]
        if len(self.panels) > len(PANELS):
            rows.append(str(_MANY_BELOW if self._screen.size.height >= _TALL else _BELOW))
        return rows

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
    """Of all that share a place, while the panel has it."""
    return f"-{panel.HEADING.lower()}"
