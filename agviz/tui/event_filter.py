"""Which events are listed: by kind, node and thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.tui import command_line
from agviz.tui.command_line import CommandError
from agviz.tui.describe import SHORT
from agviz.tui.panels.events import Events
from agviz.tui.reader_thread import Filter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agviz.tui.board import Board
    from agviz.tui.model import LoadedPass
    from agviz_engine import events as e

_NONFINITE: Final = "nonfinite"


def filter_events(board: Board, words: str) -> None:
    """List only the events that words mean; without words all."""
    view = board.shown
    wanted = read_filter(words, view.recording, view.selected) if words else None
    board.screen.query_one(Events).filter(wanted)
    if wanted is not None:
        board.reader.filter(wanted)


def complete_filter(words: str) -> Iterable[str]:
    """What the last of the words could become: kinds of events."""
    before, _, word = words.rpartition(" ")
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
            node = command_line.node(word, recording)
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
