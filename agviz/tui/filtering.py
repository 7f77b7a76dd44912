"""Filtering: which events are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType

from agviz.tui import commands
from agviz.tui.commands import CommandError, Usage
from agviz.tui.describe import SHORT
from agviz.tui.panels.events import Events
from agviz.tui.prompt import COMMAND
from agviz.tui.reader_thread import Filter
from agviz.tui.searching import Searching

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agviz.tui.model import LoadedPass
    from agviz_engine import events as e

_NONFINITE: Final = "nonfinite"


class Filtering(Searching):
    """By kind, node and thread."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "filter", "Filter events", show=False, id="events.filter"),
    ]

    VERBS: ClassVar[Mapping[str, Usage]] = {
        "filter": Usage(
            "[WORDS]",
            "list only events of kinds (started, hook, NodeFailed …; nonfinite: checks that found"
            " something), a thread (T1) and a node (#12, or . for the selected one); without words"
            " all",
        ),
    }

    def action_filter(self) -> None:
        """Ask for a filter."""
        if self.view is not None:
            self.ask(COMMAND, "filter ")

    def command_filter(self, argument: str) -> None:
        """``:filter``."""
        view = self.view
        if view is None:
            return
        wanted = read_filter(argument, view.recording, view.selected) if argument else None
        self.query_one(Events).filter(wanted)
        if wanted is not None:
            self.reader.filter(wanted)

    def complete_filter(self, argument: str) -> Iterable[str]:
        """Kinds of events."""
        before, _, word = argument.rpartition(" ")
        lead = f"{before} " if before else ""
        names = [*SHORT.values(), _NONFINITE, *(kind.__name__ for kind in SHORT)]
        return [lead + name for name in names if " " not in name and name.startswith(word)]


def read_filter(text: str, recording: LoadedPass, selected: int | None) -> Filter:
    """The filter that some words mean.

    Raises:
        CommandError: a word means nothing.
    """
    kinds: set[type[e.Event]] = set()
    thread = node = None
    nonfinite = False
    for word in text.split():
        if word[0] == "T" and word[1:].isdecimal():
            thread = int(word[1:])
        elif word == ".":
            node = selected
        elif word[0] == "#":
            node = commands.node(word, recording)
        elif len(word) > 2 and _NONFINITE.startswith(word.replace("-", "").lower()):
            nonfinite = True
        else:
            fitting = {kind for kind, short in SHORT.items() if _fits(word, kind.__name__, short)}
            if not fitting:
                raise CommandError(
                    f"{word} is no kind of event, thread (T1) or node (#12); the log has the names."
                )
            kinds |= fitting
    return Filter(text, frozenset(kinds), thread, node, nonfinite)


def _fits(word: str, name: str, short: str) -> bool:
    return name.lower().startswith(word.lower()) or short.startswith(word.lower())
