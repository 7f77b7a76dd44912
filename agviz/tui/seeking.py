"""Seeking a name in the other graph tasks of a file, a stretch of them at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from textual.message import Message

from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.reader import Trace

_NODES: Final = 20_000
"""That are looked at in one go: whoever types meanwhile notices nothing of it."""
_FIRST_NODES: Final = 60
"""That are looked at first, and then twice as many each time: what is sought is mostly near."""


def fitting(wanted: str) -> Callable[[str], bool]:
    """Whether a text holds ``wanted``; capitals count only where ``wanted`` has some."""
    if any(character.isupper() for character in wanted):
        return lambda text: wanted in text
    return lambda text: wanted in text.lower()


@dataclass
class Sought(Message):
    """How the search in other graph tasks goes."""

    progress: str
    """Where it is; empty: it is over."""
    is_vain: bool = False
    """Whether no other graph task has what is sought."""
    by: int = 1
    """Which way it went."""


class Match(NamedTuple):
    """A node that was sought."""

    graph_task: int
    node: int
    seq: int
    """Of its NodeStarted; -1: it never started."""
    text: str
    """Which of how many of its graph task."""


class Search:
    """Goes through all graph tasks but one, from there on and around.

    Args:
        tasks: the graph tasks.
        here: the one that is left out.
        wanted: part of the name, module or parameter of a node.
        by: 1: later ones first; -1: earlier ones first.
    """

    def __init__(self, tasks: GraphTasks, here: int, wanted: str, by: int) -> None:
        self.by = by
        self.fits = fitting(wanted)
        self.at = here
        """The graph task that is looked at next."""
        later = range(bisect_right(tasks.ids, here), len(tasks))
        earlier = range(bisect_left(tasks.ids, here))
        order = [later, earlier] if by > 0 else [earlier[::-1], later[::-1]]
        self._stretches = chain.from_iterable(_stretches(tasks, part) for part in order)
        self._next = next(self._stretches, None)

    def more(self, trace: Trace) -> Match | None:
        """Look at some more of them; None: what is sought is not there."""
        if self._next is None:
            return None
        first, last = self._next
        self._next = next(self._stretches, None)
        self.at = last
        found = trace.graph_tasks_with(min(first, last), max(first, last), self.fits)
        if not found:
            return None
        number = found[0 if self.by > 0 else -1]
        nodes = trace.nodes_with(number, self.fits)
        place = 0 if self.by > 0 else len(nodes) - 1
        node, seq = nodes[place]
        text = f"{place + 1:,} of {plural(len(nodes), 'match', 'matches')} in this pass"
        return Match(number, node, -1 if seq is None else seq, text)

    @property
    def is_over(self) -> bool:
        """Whether all were looked at."""
        return self._next is None


def _stretches(tasks: GraphTasks, places: range) -> Iterator[tuple[int, int]]:
    """The first and the last of graph tasks that follow each other, in their order."""
    begin, nodes, wanted = 0, 0, min(_FIRST_NODES, _NODES)
    for end, place in enumerate(places, start=1):
        nodes += tasks.nodes[place]
        if nodes >= wanted or end == len(places):
            yield tasks.ids[places[begin]], tasks.ids[place]
            begin, nodes, wanted = end, 0, min(2 * wanted, _NODES)
