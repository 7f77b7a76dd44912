"""An answer: what is unusual about a pass, or why a gradient is what it is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from agviz.analysis.outcome import Outcome
from agviz.tui.answers import why_parameter, why_unusual

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult

    from agviz.analysis.verdict import Verdict
    from agviz.tui.answers import VerdictsFound
    from agviz.tui.reader_thread import ReaderThread

_LOOKS: Final = {
    Outcome.FOUND: "-bad",
    Outcome.NOTHING_UNUSUAL: "-good",
    Outcome.CANT_TELL: "-unknown",
}


class Answer(ModalScreen[None]):
    """Opens over the screen on a trace."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,w,enter", "dismiss", "Close", id="answer.close"),
        Binding("y", "copy", "Copy", id="answer.copy"),
        Binding("j", "scroll(1)", "Down", show=False, id="answer.down"),
        Binding("k", "scroll(-1)", "Up", show=False, id="answer.up"),
        Binding("g", "scroll(-1_000_000)", "Begin", show=False, id="answer.first"),
        Binding("G", "scroll(1_000_000)", "End", show=False, id="answer.last"),
    ]

    def __init__(self, answer: VerdictsFound) -> None:
        super().__init__()
        self.answer = answer

    def compose(self) -> ComposeResult:
        """A box that scrolls."""
        answer = self.answer
        with VerticalScroll(id="answer") as box:
            box.border_title = "Why"
            box.border_subtitle = "y copies, escape closes"
            for verdict in answer.verdicts:
                yield from _lines_of(verdict)
            if answer.others:
                yield Static(Text(answer.others), classes="paragraph")

    def action_scroll(self, by: int) -> None:
        """Scroll by lines."""
        self.query_one("#answer", VerticalScroll).scroll_relative(y=by, animate=False)

    def action_copy(self) -> None:
        """Copy all of it."""
        parts = [
            part
            for verdict in self.answer.verdicts
            for part in (
                verdict.heading,
                verdict.line,
                verdict.source,
                verdict.paragraph,
                *verdict.details,
            )
        ]
        text = "\n".join(part for part in [*parts, self.answer.others] if part)
        self.app.copy_to_clipboard(text)
        self.notify("Copied.", timeout=2)


def show_answer(
    screen: Screen[Any], reader: ReaderThread, parameter: str, graph_task: int | None
) -> None:
    """Open one over a screen, once it is known.

    Args:
        screen: over which it opens.
        reader: the thread that reads the file.
        parameter: whose gradient is to be explained; empty: what is unusual about the pass.
        graph_task: the pass; None: the one that is shown.
    """

    def show(found: VerdictsFound) -> None:
        screen.app.push_screen(Answer(found))

    of_pass = partial(why_unusual, number=graph_task)
    reader.ask(why_parameter(parameter, graph_task) if parameter else of_pass, show)


def _lines_of(verdict: Verdict) -> Iterator[Static]:
    look = _LOOKS[verdict.outcome]
    yield Static(Text(f"{verdict.outcome.glyph} {verdict.heading}"), classes=f"heading {look}")
    if verdict.line:
        yield Static(Text(verdict.line), classes="place")
    if verdict.source:
        yield Static(Text(f"  {verdict.source}"), classes="source")
    if verdict.paragraph:
        yield Static(Text(verdict.paragraph), classes="paragraph")
    if verdict.details:
        yield Static(Text("\n".join(verdict.details)), classes="details")
