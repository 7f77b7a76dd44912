"""A short tour of a screen, shown when it is first opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.app import ComposeResult

TourName = Literal["run", "pass", "program"]


class TourStage(NamedTuple):
    """A part of a screen, and what one does with it."""

    panel: str
    """Its id; empty: the screen."""
    text: str


TOURS: Final[Mapping[TourName, tuple[TourStage, ...]]] = {
    "run": (
        TourStage(
            "run-list",
            "These are all backward passes of the run. The cursor is on the first one that is not"
            " good: ✗ failed or cut off, ! with NaN or infinity. What happened in it, and at which"
            " line, is below. enter opens the pass where that is seen.",
        ),
        TourStage(
            "run-list",
            "x goes to the next pass that is not good, s sorts the list, / lists only some. ?"
            " explains the columns.",
        ),
    ),
    "pass": (
        TourStage(
            "graph",
            "Every node of the backward pass, in the order in which it ran. j and k choose one;"
            " Inspector shows what is known of it, Source (v) the line that made it.",
        ),
        TourStage(
            "events",
            "All panels show the same moment, the playhead ▶. n and N go from node to node, s and S"
            " from event to event, c to the next failure or non-finite gradient, x to the first.",
        ),
        TourStage(
            "graph",
            "w says why a gradient is NaN, zero or None, and what is unusual about the pass. p"
            " lists all passes of the run.",
        ),
        TourStage(
            "graph",
            "tab goes to the next panel, z gives it all the room; borders can be dragged. : takes"
            " commands, / searches, ? lists all keys, q leaves. :tour shows this again.",
        ),
    ),
    "program": (
        TourStage(
            "graph",
            "The program is stopped before the node that is marked. n runs to the next node, c to"
            " the next failure or breakpoint, b sets a breakpoint at the node under the cursor.",
        ),
        TourStage(
            "inspector",
            "The tensors of the stopped node, as they are now. ! takes Python that sees them.",
        ),
        TourStage(
            "output",
            "What the program prints. N and S only look back; c returns to now. q asks whether to"
            " end the program or to let it run on. ? lists all keys, :tour shows this again.",
        ),
    ),
}


class Tour(ModalScreen[None]):
    """A box at the lower edge, through which the screen is seen.

    Args:
        name: which tour.
        show_panel: shows and focuses a panel of the screen, by its id.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space,right,n", "go(1)", "Next", id="tour.next"),
        Binding("left,backspace,N", "go(-1)", "Back", id="tour.back"),
        Binding("escape,q", "dismiss", "Leave", id="tour.leave"),
    ]

    class Offered(Message):
        """A screen is there for the user to see."""

        def __init__(
            self, name: TourName, show_panel: Callable[[str], None], *, is_asked_for: bool = False
        ) -> None:
            super().__init__()
            self.name = name
            self.show_panel = show_panel
            self.is_asked_for = is_asked_for

    def __init__(self, name: TourName, show_panel: Callable[[str], None]) -> None:
        super().__init__()
        self._stages = TOURS[name]
        self._show_panel = show_panel
        self._place = 0

    def compose(self) -> ComposeResult:
        """A box."""
        with Vertical(id="tour"):
            yield Static("", id="tour-text")

    def on_mount(self) -> None:
        """Begin."""
        self.action_go(0)

    def action_go(self, by: int) -> None:
        """Show the next or the previous stage; behind the last one, leave."""
        self._place = max(0, self._place + by)
        if self._place == len(self._stages):
            self.dismiss(None)
            return
        panel, text = self._stages[self._place]
        self._show_panel(panel)
        box = self.query_one("#tour", Vertical)
        box.border_title = f"Tour {self._place + 1}/{len(self._stages)}"
        box.border_subtitle = "enter goes on, escape leaves"
        self.query_one("#tour-text", Static).update(Text(text))
