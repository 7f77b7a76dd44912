"""The line of keys at the bottom: those of the focused panel, and those of the screen.

One widget that draws a line: Textual's own footer makes a widget of every key, anew whenever the
focus moves, which takes longer than a key may.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from rich.text import Text
from textual.binding import Binding
from textual.widget import Widget

if TYPE_CHECKING:
    from textual import events
    from textual.binding import ActiveBinding
    from textual.screen import Screen

_KEPT: Final = {"help", "quit"}
"""Ends of ids of bindings that are shown however little room there is."""


class Hint(NamedTuple):
    """Keys with one description."""

    keys: tuple[tuple[str, str], ...]
    """As they are shown, and Textual's name for them."""
    description: str
    is_kept: bool

    @property
    def width(self) -> int:
        """Cells, with what parts it from the next."""
        return sum(Text(shown).cell_len for shown, _ in self.keys) + len(self.description) + 3


class Hints(Widget):
    """Keys and what they do; a click presses one. What has no room is left out as a whole."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"hints--key"}

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._hints: list[Hint] = []
        self._places: list[tuple[int, int, str]] = []
        """Of each key: where it begins and ends, and its name."""

    def on_mount(self) -> None:
        """Draw other bindings."""
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        hints = list(_hints(screen))
        if hints != self._hints:
            self._hints = hints
            self.refresh()

    def render(self) -> Text:
        """The hints that have room; how to open the palette at the right, where there is any."""
        width = self.content_size.width
        shown = self._hints[:]
        while sum(hint.width for hint in shown) > width and not all(h.is_kept for h in shown):
            shown.remove([hint for hint in shown if not hint.is_kept][-1])
        line = Text(no_wrap=True, overflow="ellipsis")
        self._places = []
        for hint in shown:
            self._add(line, hint)
        palette = self.screen.active_bindings.get(self.app.COMMAND_PALETTE_BINDING)
        if palette is not None:
            hint = _hint([palette], "palette")
            room = width - line.cell_len - hint.width
            if room >= 0:
                line.append(" " * room)
                self._add(line, hint)
        return line

    def _add(self, line: Text, hint: Hint) -> None:
        style = self.get_component_rich_style("hints--key", partial=True)
        start = line.cell_len
        line.append(" ")
        for shown, key in hint.keys:
            begin = line.cell_len
            line.append(shown, style)
            self._places.append((begin, line.cell_len, key))
        line.append(f" {hint.description} ")
        if len(hint.keys) == 1:
            self._places[-1] = (start, line.cell_len, hint.keys[0][1])

    def on_click(self, event: events.Click) -> None:
        """Press the key under the mouse."""
        event.stop()
        offset = event.get_content_offset(self)
        for begin, end, key in self._places:
            if offset is not None and begin <= offset.x < end:
                self.app.simulate_key(key)
                break


def _hints(screen: Screen[object]) -> list[Hint]:
    found: dict[str, ActiveBinding] = {}
    for active in screen.active_bindings.values():
        if active.binding.show and active.enabled:
            found.setdefault(active.binding.action, active)
    hints = []
    in_order = sorted(found.values(), key=_place)
    for group, members in groupby(in_order, key=lambda active: active.binding.group):
        if group is not None:
            hints.append(_hint(list(members), group.description))
        else:
            hints += [_hint([active], active.binding.description) for active in members]
    return hints


def _place(active: ActiveBinding) -> tuple[int, int]:
    """The focused panel's come first, each in the order of its class, whatever the keys are."""
    declared = [
        binding.id
        for part in reversed(type(active.node).__mro__)
        for binding in vars(part).get("BINDINGS", ())
        if isinstance(binding, Binding)
    ]
    place = declared.index(active.binding.id) if active.binding.id in declared else -1
    return -len(active.node.ancestors), place


def _hint(members: list[ActiveBinding], description: str) -> Hint:
    app = members[0].node.app
    keys = tuple((app.get_key_display(each.binding), each.binding.key) for each in members)
    ends = {(each.binding.id or "").rpartition(".")[2] for each in members}
    return Hint(keys, description, not ends.isdisjoint(_KEPT))
