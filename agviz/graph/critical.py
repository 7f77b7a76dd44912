"""The critical path: the longest time that nodes took which had to wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agviz.traces.rows import EdgeRow

NOWHERE = -1


class CriticalPath(NamedTuple):
    """Nodes of which each feeds the next; no other such row of nodes took longer."""

    nodes: tuple[int, ...]
    """Indices, producers first; empty where nothing was executed."""
    members: frozenset[int]
    """The same."""
    total_ns: int
    """Time spent in them. A backward pass can't be faster, however many threads it has."""


NO_PATH = CriticalPath((), frozenset(), 0)


def critical_path(
    order: Sequence[int], edges: Iterable[EdgeRow], times_ns: Mapping[int, int]
) -> CriticalPath:
    """The path through executed nodes whose times add up to most.

    Args:
        order: indices of nodes, producers before consumers.
        edges: those between them; one that leads backwards is left out.
        times_ns: how long each node that was executed took; others are on no path.
    """
    place = {index: position for position, index in enumerate(order)}
    feeding: dict[int, list[int]] = {}
    for edge in edges:
        producer, consumer = edge.producer, edge.consumer
        if producer in times_ns and place[producer] < place[consumer]:
            feeding.setdefault(consumer, []).append(producer)
    until: dict[int, int] = {}
    before: dict[int, int] = {}
    last = NOWHERE
    for index in order:
        if index not in times_ns:
            continue
        longest = NOWHERE
        for producer in feeding.get(index, ()):
            if longest == NOWHERE or until[producer] > until[longest]:
                longest = producer
        before[index] = longest
        until[index] = times_ns[index] + (0 if longest == NOWHERE else until[longest])
        if last == NOWHERE or until[index] > until[last]:
            last = index
    path = []
    step = last
    while step != NOWHERE:
        path.append(step)
        step = before[step]
    return CriticalPath(tuple(reversed(path)), frozenset(path), until.get(last, 0))
