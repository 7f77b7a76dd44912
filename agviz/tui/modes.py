"""Modes: what a user is about, named at the right of the title of every screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Generic, Literal, TypeVar

from rich.text import Text
from textual.binding import Binding
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual import events
    from textual.binding import BindingType

Mode = Literal["Run", "Pass", "Source", "Timeline", "Compare"]
MODES: Final[Mapping[Mode, tuple[str, str]]] = {
    "Run": ("f2", "All passes of the run"),
    "Pass": ("f3", "Panels of the pass"),
    "Source": ("f4", "Source and the nodes it made"),
    "Timeline": ("f5", "Timeline of the process"),
    "Compare": ("f6", "Two passes beside each other"),
}
"""The key of each, and what it shows."""

T = TypeVar("T")


class ModeBar(Widget):
    """Their names, of which the mouse chooses one; the one that is shown is marked.

    Args:
        mode: that is shown.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"mode-bar--shown"}

    class ModeChosen(Message):
        """The user wants another one."""

        def __init__(self, mode: Mode) -> None:
            super().__init__()
            self.mode = mode

    def __init__(self, mode: Mode) -> None:
        super().__init__()
        self._mode = mode

    def show(self, mode: Mode) -> None:
        """Mark another one."""
        if mode != self._mode:
            self._mode = mode
            self.refresh()

    def render(self) -> Text:
        """The names."""
        shown = self.get_component_rich_style("mode-bar--shown", partial=True)
        line = Text(no_wrap=True)
        for mode in MODES:
            line.append(f" {mode} ", shown if mode == self._mode else "")
        return line

    def on_click(self, event: events.Click) -> None:
        """Choose the one under the mouse."""
        event.stop()
        offset = event.get_content_offset(self)
        end = 0
        for mode in MODES:
            end += len(mode) + 2
            if offset is not None and offset.x < end:
                self.post_message(self.ModeChosen(mode))
                break


class ModeScreen(Screen[T], Generic[T]):
    """A screen over the one on a trace, that shows a mode of its own."""

    MODE: ClassVar[Mode]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"mode('{mode}')", text, show=False, id=f"mode.{mode.lower()}")
        for mode, (key, text) in MODES.items()
    ]

    def renew(self, file: int) -> None:
        """More has come to a file; what it has to do with this screen is taken over."""

    def on_mode_bar_mode_chosen(self, message: ModeBar.ModeChosen) -> None:
        """Go on to another mode."""
        self.action_mode(message.mode)

    def action_mode(self, mode: Mode) -> None:
        """Leave, and have the screen below show another mode."""
        if mode != self.MODE:
            below = self.app.screen_stack[-2]
            self.dismiss(None)
            below.post_message(ModeBar.ModeChosen(mode))
