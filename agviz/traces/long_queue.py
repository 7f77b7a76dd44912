"""LongQueue: a heap of many tasks, of which entries are made only where somebody looks.

Note [Long queues]
In which order tasks leave a heap depends on where they stand in it only as far as their keys are
equal. Where no two nodes of a graph task have the same sequence number, AccumulateGrad apart, its
other nodes are therefore *loose*: it is enough to know which of them are in the queue, and they
leave in the order of their keys. All that goes before them (AccumulateGrad, reentrant graph tasks,
a shutdown) is *placed*, and sifted as ``heapq`` does. That is exact: sifting never asks which of
several loose tasks it passes, each of which has a larger key than a placed one, so that the placed
ones take the same places, at the top of the heap. So it is as long as nothing with a key that a
loose task may have, or with a larger one, can come from another graph task. In the queue of a
calling thread nothing has the depth of the graph task that the thread is in, and what is less deep
comes from device threads only; in the queue of a device another calling thread may be met, unless
the graph task had its depth to itself from its begin to its end (``keyframe.py``).

Where nodes are not loose, all are placed; an entry is still made only when sifting touches it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agviz.traces.graph_shape import GraphShape
    from agviz.traces.heap_entry import HeapEntry, QueuedTask

_AHEAD: Final = 64
"""Places of the pop order that are looked at together."""
_FEW: Final = 256
"""So few tasks are better kept in a list."""


class Parted(NamedTuple):
    """A heap of which only a part is placed."""

    placed: dict[int, HeapEntry]
    """By place."""
    first_loose: HeapEntry


@dataclass(frozen=True, slots=True)
class Owner:
    """The graph task to which the nodes of a long queue belong."""

    graph_task: int
    depth: int
    shape: GraphShape

    def entry(self, node: int) -> HeapEntry:
        """The NodeTask of a node."""
        return self.shape.entry(self.graph_task, self.depth, node)


class _Places(dict[int, "HeapEntry | None"]):
    """Entries by their place in the heap; None: nobody is placed there."""

    def __init__(self, owner: Owner, nodes: Sequence[int]) -> None:
        self._owner = owner
        self.nodes = nodes
        """By place: of the first ones, as long as they are not touched. It never changes."""

    def __missing__(self, place: int) -> HeapEntry | None:
        if place >= len(self.nodes):
            return None
        # A false number is turned into that of some node: nobody looks through all of them before.
        node = self.nodes[place] % len(self._owner.shape.dependencies)
        entry = self[place] = self._owner.entry(node)
        return entry

    def vacate(self, place: int) -> None:
        """Place nobody there any more."""
        if place < len(self.nodes):
            self[place] = None
        else:
            self.pop(place, None)

    def copy(self) -> _Places:
        twin = _Places(self._owner, self.nodes)
        twin.update(self)
        return twin

    def touched(self) -> Iterator[HeapEntry]:
        """In order of places. Of the nodes of others than the owner none is missing."""
        return (entry for place in sorted(self) if (entry := self[place]) is not None)


class LongQueue:
    """Note [Long queues]. Made by :meth:`loose` and :meth:`listed`."""

    __slots__ = (
        "_ahead",
        "_count",
        "_front",
        "_later",
        "_next",
        "_place",
        "_places",
        "_queued",
        "_size",
        "limit",
        "owner",
    )

    def __init__(self, owner: Owner, nodes: Sequence[int] = ()) -> None:
        self.owner = owner
        self.limit: int | None = None
        """Entries with a larger key are loose; None: there are none."""
        self._places = _Places(owner, nodes)
        self._size = len(nodes)
        self._later: list[HeapEntry] = []
        """Loose tasks that were pushed since, a heap."""
        self._queued = bytearray()
        """By node: 1 for the other loose tasks."""
        self._count = 0
        """How many they are."""
        self._place = 0
        """Of the pop order; ahead of it, none of them stands but in :attr:`_ahead`."""
        self._ahead: Sequence[int] = ()
        self._next = 0
        """Place in :attr:`_ahead` before which none of them stands."""
        self._front: HeapEntry | None = None
        """The first of them, where it is known."""

    @classmethod
    def loose(
        cls,
        owner: Owner,
        limit: int,
        queued: bytearray,
        place: int,
        placed: Mapping[int, HeapEntry],
    ) -> LongQueue:
        """A queue in which most tasks are loose.

        Args:
            owner: of the loose tasks.
            limit: the largest key of a placed entry.
            queued: by node of the owner: 1 where it is queued and not placed, else 0.
            place: of the first of them in the pop order.
            placed: entries by place, from the top of the heap without gaps.
        """
        queue = cls(owner)
        queue.limit = limit
        queue._queued = queued
        queue._count = queued.count(1)
        queue._place = place
        queue._places.update(placed)
        queue._size = queue._count + len(placed)
        return queue

    @classmethod
    def listed(cls, owner: Owner, nodes: Sequence[int]) -> LongQueue:
        """Any queue: the nodes of the owner as they stand in the heap."""
        return cls(owner, nodes)

    def __len__(self) -> int:
        return self._size

    def copy(self) -> LongQueue:
        """A copy that shares nothing that changes."""
        twin = LongQueue(self.owner)
        twin.limit = self.limit
        twin._places = self._places.copy()
        twin._size = self._size
        twin._later = self._later.copy()
        twin._queued = self._queued[:]
        twin._count = self._count
        twin._place, twin._ahead, twin._next = self._place, self._ahead, self._next
        twin._front = self._front
        return twin

    @property
    def is_spent(self) -> bool:
        """Whether there is nothing in it any more for which it is better than a heap."""
        return self._size < _FEW or (self.limit is not None and not self._count)

    def push(self, entry: HeapEntry) -> None:
        """Add a task."""
        self._size += 1
        if self.limit is None or entry[0] <= self.limit:
            self._rise(self._size - 1, entry)
        else:
            heapq.heappush(self._later, entry)

    def first(self) -> HeapEntry:
        """The entry that will be popped first; there has to be one."""
        return self._places[0] or self.first_loose()

    def pop(self) -> HeapEntry:
        """Take the first entry out; there has to be one."""
        places = self._places
        first = places[0]
        self._size -= 1
        if first is None:
            return self._pop_loose()
        last = places[self._size]
        places.vacate(self._size)
        if self._size:
            hole = self._sink()
            if last is None:
                places.vacate(hole)
            else:
                self._rise(hole, last)
        return first

    def _sink(self) -> int:
        """Move placed entries up as one leaves the top; the place that is left empty."""
        places = self._places
        place = 0
        while True:
            left, right = places[2 * place + 1], places[2 * place + 2]
            if left is not None and (right is None or left < right):
                child, entry = 2 * place + 1, left
            elif right is not None:
                child, entry = 2 * place + 2, right
            else:
                return place
            places[place] = entry
            place = child

    def _rise(self, place: int, entry: HeapEntry) -> None:
        """Place an entry there or above."""
        places = self._places
        while place:
            above = places[(place - 1) >> 1]
            if above is not None:
                if not entry < above:
                    break
                places[place] = above
            place = (place - 1) >> 1
        places[place] = entry

    def first_loose(self) -> HeapEntry:
        """The first of the loose tasks; there has to be one."""
        if not self._count:
            return self._later[0]
        front = self._front
        if front is None:
            front = self._front = self.owner.entry(self._find())
        return self._later[0] if self._later and self._later[0] < front else front

    def _pop_loose(self) -> HeapEntry:
        first = self.first_loose()
        if first is not self._front:
            return heapq.heappop(self._later)
        self._take_out(first[1].task.node)
        return first

    def _take_out(self, node: int) -> None:
        self._queued[node] = 0
        self._count -= 1
        self._front = None

    def _find(self) -> int:
        """The first loose node that was there from the beginning; there has to be one."""
        queued = self._queued
        while True:
            while self._next < len(self._ahead):
                node = self._ahead[self._next]
                if queued[node]:
                    return node
                self._next += 1
            self._next = 0
            nodes = self.owner.shape.pop_order[self._place : self._place + _AHEAD]
            self._place += len(nodes)
            try:
                self._ahead = list(compress(nodes, map(queued.__getitem__, nodes)))
            except IndexError:  # the order is a false one
                nodes = ()
            if not nodes:
                self._ahead = [queued.find(1)]

    def find(self, task: QueuedTask) -> HeapEntry | None:
        """The entry of a task, None where it is not in the queue."""
        if self.limit is not None and task.graph_task == self.owner.graph_task:
            if self._queued[task.node]:
                return self.owner.entry(task.node)
            return next((entry for entry in self._made() if entry[1].task == task), None)
        return next((entry for entry in self.entries() if entry[1].task == task), None)

    def remove_loose(self, task: QueuedTask) -> bool:
        """Take a loose task out where that moves no other one."""
        own = task.graph_task == self.owner.graph_task
        if not own or self.limit is None or self._places[0] or not self._queued[task.node]:
            return False
        self._take_out(task.node)
        self._size -= 1
        return True

    def parted(self, limit: int, most: int) -> Parted | None:
        """As :meth:`agviz.traces.task_heap.TaskHeap.parted`, where this is what it was made of."""
        placed = {place: entry for place, entry in self._places.items() if entry is not None}
        if self.limit != limit or len(placed) > most:
            return None
        return Parted(placed, self.first_loose())

    def graph_tasks(self) -> set[int]:
        """The graph tasks of all tasks in it."""
        own = self.owner.graph_task
        others = [tied.task.graph_task for _, tied in self._made()]
        found = set(others)
        if self._size > len(others) - others.count(own):
            found.add(own)
        return found

    def without(self, unwanted: Callable[[int], bool]) -> list[HeapEntry] | None:
        """The entries whose graph tasks are not unwanted, by place; None: none is unwanted."""
        if unwanted(self.owner.graph_task):
            kept = list(self._made())
        elif any(unwanted(tied.task.graph_task) for _, tied in self._made()):
            kept = self.entries()
        else:
            return None
        return [entry for entry in kept if not unwanted(entry[1].task.graph_task)]

    def _made(self) -> Iterator[HeapEntry]:
        """The entries that there are, those of others than the owner among them."""
        return chain(self._places.touched(), sorted(self._later))

    def entries(self) -> list[HeapEntry]:
        """All of them, as a heap."""
        loose = self._all_loose()
        return [self._places[place] or next(loose) for place in range(self._size)]

    def _all_loose(self) -> Iterator[HeapEntry]:
        rest = self.copy()
        while rest._count or rest._later:
            yield rest._pop_loose()
