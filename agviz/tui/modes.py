"""Modes: what a user is about, named at the right of the title of every screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from rich.text import Text
from textual.message import Message
from textual.widget import Widget

if TYPE_CHECKING:
    from textual import events

Mode = Literal["Run", "Pass", "Source"]
MODES: tuple[Mode, ...] = get_args(Mode)


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
