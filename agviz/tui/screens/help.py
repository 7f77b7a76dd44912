"""Help: what the focused panel shows, and every key that works in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from agviz.tui.model import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from textual.app import ComposeResult

    from agviz.tui.commands import Usage


class Help(ModalScreen[None]):
    """Opens over the session.

    Args:
        heading: the panel's name.
        text: what it shows.
        keys: the keys of the panel, then those that work everywhere: key and what it does.
        commands: by name; empty: there are none, and no nodes with states either.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close", id="help.close"),
        Binding("j", "scroll('down')", "Down", show=False, id="help.down"),
        Binding("k", "scroll('up')", "Up", show=False, id="help.up"),
        Binding("g", "scroll('home')", "Begin", show=False, id="help.first"),
        Binding("G", "scroll('end')", "End", show=False, id="help.last"),
    ]

    def __init__(
        self,
        heading: str,
        text: str,
        keys: Iterable[tuple[str, Iterable[tuple[str, str]]]],
        commands: Mapping[str, Usage],
    ) -> None:
        super().__init__()
        self._heading = heading
        self._text = text
        self._keys = keys
        self._commands = commands

    def compose(self) -> ComposeResult:
        """A box that scrolls."""
        with VerticalScroll(id="help") as box:
            box.border_title = f"Help: {self._heading}"
            box.border_subtitle = "escape closes"
            yield Static(Text(self._text), classes="paragraph")
            if self._commands:
                yield Static(_states(), classes="paragraph")
            for title, keys in self._keys:
                yield Static(Text(title, style="bold"))
                yield Static(_two_columns(keys), classes="paragraph")
            if self._commands:
                yield Static(Text("Commands (after :)", style="bold"))
                yield Static(
                    _two_columns(
                        (f"{name} {usage.arguments}".strip(), usage.help)
                        for name, usage in self._commands.items()
                    ),
                    classes="paragraph",
                )

    def action_scroll(self, direction: str) -> None:
        """Scroll by a line, or to an end."""
        box = self.query_one("#help", VerticalScroll)
        getattr(box, f"scroll_{direction}")(animate=False)


def _states() -> Text:
    words = [f"{state.glyph} {state.label}" for state in State]
    return Text("States:  " + "   ".join(words[:4]) + "\n         " + "   ".join(words[4:]))


def _two_columns(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=True)
    table.add_column(min_width=14, no_wrap=True)
    table.add_column()
    for name, text in rows:
        table.add_row(Text(name, style="bold"), Text(text))
    return table
