"""Help: what the focused panel shows, and every key that works in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from agviz.tui.model import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult
    from textual.dom import DOMNode
    from textual.screen import Screen

    from agviz.tui.command_line import Usage

KeyRows: TypeAlias = "list[tuple[str, str]]"


class Help(ModalScreen[None]):
    """Opens over the screen on a trace.

    Args:
        heading: the panel's name.
        text: what it shows.
        keys: the keys of the panel, then those that work everywhere: key and what it does.
        commands: empty: there are none, and no nodes with states either.
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
        commands: Iterable[Usage],
    ) -> None:
        super().__init__()
        self._heading = heading
        self._text = text
        self._keys = keys
        self._commands = [(f"{each.name} {each.argument}".strip(), each.help) for each in commands]

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
                yield Static(_two_columns(self._commands), classes="paragraph")

    def action_scroll(self, direction: str) -> None:
        """Scroll by a line, or to an end."""
        box = self.query_one("#help", VerticalScroll)
        getattr(box, f"scroll_{direction}")(animate=False)


def keys_of(screen: Screen[Any], panel: DOMNode) -> tuple[KeyRows, KeyRows]:
    """The keys that work in a panel, and those that work everywhere: each with what it does."""
    keys: dict[tuple[str | None, str], list[str]] = {}
    of_panel: KeyRows = []
    everywhere: KeyRows = []
    bindings = [each for each in screen.active_bindings.values() if each.binding.id]
    for _, binding, _, _ in bindings:
        mark = binding.id, binding.action
        keys.setdefault(mark, []).append(screen.app.get_key_display(binding))
    for node, binding, enabled, tooltip in bindings:
        said = tooltip or binding.description
        if enabled and said and (shown := keys.pop((binding.id, binding.action), None)):
            (of_panel if node is panel else everywhere).append((" ".join(shown), said))
    return of_panel, everywhere


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
