"""An answer: why a gradient is what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from agviz.tui.answers import Answered

_LOOKS: Final = {True: ("✗", "-bad"), False: ("✓", "-good"), None: ("?", "-unknown")}
"""Glyph and class, by whether something is wrong."""


class Answer(ModalScreen[None]):
    """Opens over the session."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,w,enter", "dismiss", "Close", id="answer.close"),
        Binding("y", "copy", "Copy", id="answer.copy"),
        Binding("j", "scroll(1)", "Down", show=False, id="answer.down"),
        Binding("k", "scroll(-1)", "Up", show=False, id="answer.up"),
        Binding("g", "scroll(-1_000_000)", "Begin", show=False, id="answer.first"),
        Binding("G", "scroll(1_000_000)", "End", show=False, id="answer.last"),
    ]

    def __init__(self, answer: Answered) -> None:
        super().__init__()
        self.answer = answer

    def compose(self) -> ComposeResult:
        """A box that scrolls."""
        answer = self.answer
        with VerticalScroll(id="answer") as box:
            box.border_title = "Why"
            box.border_subtitle = "y copies, escape closes"
            glyph, look = _LOOKS[answer.is_bad]
            yield Static(Text(f"{glyph} {answer.heading}"), classes=f"heading {look}")
            if answer.line:
                yield Static(Text(answer.line), classes="place")
            if answer.source:
                yield Static(Text(f"  {answer.source}"), classes="source")
            for number, text in enumerate((answer.paragraph, "\n".join(answer.details))):
                if text:
                    yield Static(Text(text), classes="details" if number else "paragraph")

    def action_scroll(self, by: int) -> None:
        """Scroll by lines."""
        self.query_one("#answer", VerticalScroll).scroll_relative(y=by, animate=False)

    def action_copy(self) -> None:
        """Copy all of it."""
        answer = self.answer
        parts = (answer.heading, answer.line, answer.source, answer.paragraph, *answer.details)
        self.app.copy_to_clipboard("\n".join(part for part in parts if part))
        self.notify("Copied.", timeout=2)
