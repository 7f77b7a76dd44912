"""The question what is to become of the program when the debugger is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

if TYPE_CHECKING:
    from textual.app import ComposeResult

Choice = Literal["end", "detach"]


class Leave(ModalScreen[Choice | None]):
    """Opens over the screen on a trace; its result is what to do with the program, None: stay.

    Args:
        can_end: whether the program was started from here.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Stay", id="leave.stay"),
        Binding("e", "choose('end')", "End it", show=False, id="leave.end"),
        Binding("d", "choose('detach')", "Let it run on", show=False, id="leave.detach"),
    ]

    def __init__(self, *, can_end: bool) -> None:
        super().__init__()
        self._can_end = can_end

    def compose(self) -> ComposeResult:
        """The choices."""
        options = [Option("d  Let the program run on without the debugger", id="detach")]
        if self._can_end:
            options.insert(0, Option("e  End the program", id="end"))
        box = OptionList(*options, Option("   Stay", id="stay"), id="leave")
        box.border_title = "Leave"
        box.border_subtitle = "enter chooses, escape stays"
        yield box

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Do it."""
        self.action_choose(str(event.option_id))

    def action_choose(self, choice: str) -> None:
        """Leave, or stay."""
        if choice == "end" and self._can_end:
            self.dismiss("end")
        elif choice == "detach":
            self.dismiss("detach")
        else:
            self.dismiss(None)
