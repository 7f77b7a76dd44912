"""The list of breakpoints: to add, edit, switch off and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from agviz.debugger.breakpoints import Breakpoint, parse
from agviz.errors import AgvizError
from agviz.tui.marking import mark_of
from agviz.tui.text import right
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult

_HELP = "a add · e edit · space on and off · d remove · escape back"
WITHOUT_LINES = "the program runs with --no-provenance, and lines are not known"
_EXAMPLE = "Mul.* module=encoder.0 if norm > 1e3   or   train.py:12   or   parameter=fc.weight"


class Breakpoints(ModalScreen[None]):
    """Opens over the screen on a trace, has done what is asked, and is shown the outcome.

    Args:
        breakpoints: in the order of their numbers.
        change: has one made, changed or removed: ``add``, ``edit`` or ``remove``, and the one.
        knows_lines: whether the program knows which lines of the forward made its nodes.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="breakpoints.back"),
        Binding("B,q", "dismiss", "Back", show=False, id="breakpoints.leave"),
        Binding("a", "write(False)", "Add", id="breakpoints.add"),
        Binding("e,enter", "write(True)", "Edit", id="breakpoints.edit"),
        Binding("space", "switch", "On and off", id="breakpoints.switch"),
        Binding("d,delete", "remove", "Remove", id="breakpoints.remove"),
        Binding("j", "move(1)", "Down", show=False, id="breakpoints.down"),
        Binding("k", "move(-1)", "Up", show=False, id="breakpoints.up"),
    ]

    def __init__(
        self,
        breakpoints: Sequence[Breakpoint],
        change: Callable[[str, Breakpoint], None],
        *,
        knows_lines: bool,
    ) -> None:
        super().__init__()
        self._knows_lines = knows_lines
        self._change = change
        self._breakpoints = list(breakpoints)
        self._edited: Breakpoint | None = None

    def compose(self) -> ComposeResult:
        """One line for each, and a line to write one."""
        with Vertical(id="breakpoints"):
            yield OptionList(id="breakpoints-list")
            yield Input(placeholder=_EXAMPLE, id="breakpoints-field", compact=True)
            yield Static(_HELP, id="breakpoints-help", markup=False)

    def on_mount(self) -> None:
        """Begin with the list."""
        self.query_one("#breakpoints", Vertical).border_title = "Breakpoints"
        self.query_one(Input).display = False
        self.show(self._breakpoints)

    def show(self, breakpoints: Sequence[Breakpoint]) -> None:
        """Show what there is now."""
        self._breakpoints = list(breakpoints)
        box = self.query_one(OptionList)
        place = box.highlighted or 0
        box.clear_options()
        box.add_options(
            [Option(Text(self._line(each)), id=str(each.number)) for each in self._breakpoints]
            or [Option("There are none; press a to add one.", disabled=True)]
        )
        if self._breakpoints:
            box.highlighted = min(place, len(self._breakpoints) - 1)
        if not self.query_one(Input).display:
            box.focus()

    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],  # noqa: ARG002 - Textual passes it
    ) -> bool | None:
        """While one is written, letters are letters."""
        return action == "back" or not any(line.display for line in self.query(Input))

    def action_back(self) -> None:
        """Close the line, or the list."""
        if self.query_one(Input).display:
            self._close_line()
        else:
            self.dismiss()

    def action_write(self, edit: bool) -> None:
        """Open the line to write a breakpoint."""
        self._edited = self._chosen if edit else None
        if edit and self._edited is None:
            return
        field = self.query_one(Input)
        field.value = "" if self._edited is None else self._edited.describe()
        field.display = True
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Make it, or change it."""
        event.stop()
        try:
            written = parse(event.value)
        except AgvizError as error:
            self.notify(clean(str(error)), severity="warning", markup=False)
            return
        if self._edited is None:
            self._change("add", written)
        else:
            kept = {"number": self._edited.number, "enabled": self._edited.enabled}
            changed = written.changed(**kept, temporary=self._edited.temporary)
            self._change("edit", changed)
        self._close_line()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Edit it."""
        event.stop()
        self.action_write(True)

    def action_switch(self) -> None:
        """Switch it on or off."""
        chosen = self._chosen
        if chosen is not None:
            self._change("edit", chosen.changed(enabled=not chosen.enabled))

    def action_remove(self) -> None:
        """Remove it."""
        if self._chosen is not None:
            self._change("remove", self._chosen)

    def action_move(self, by: int) -> None:
        """Move the highlight."""
        box = self.query_one(OptionList)
        if by > 0:
            box.action_cursor_down()
        else:
            box.action_cursor_up()

    @property
    def _chosen(self) -> Breakpoint | None:
        place = self.query_one(OptionList).highlighted
        return None if place is None or not self._breakpoints else self._breakpoints[place]

    def _line(self, each: Breakpoint) -> str:
        never = f"   never stops: {WITHOUT_LINES}"
        return describe(each) + (never if each.line and not self._knows_lines else "")

    def _close_line(self) -> None:
        self.query_one(Input).display = False
        self.query_one(OptionList).focus()


def describe(each: Breakpoint) -> str:
    """A breakpoint on one line."""
    once = " once" if each.temporary else ""
    hits = f"   {plural(each.hits, 'hit')}" if each.hits else ""
    return clean(
        f"{mark_of(each).glyph} {right(str(each.number), 3)}{once}  {each.describe()}{hits}"
    )
