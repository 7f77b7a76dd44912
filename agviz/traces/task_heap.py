"""TaskHeap: the NodeTasks of one replayed ReadyQueue."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from agviz.traces.long_queue import Parted

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.heap_entry import HeapEntry, QueuedTask
    from agviz.traces.long_queue import LongQueue


class TaskHeap:
    """They leave in the order in which they leave torch's ``std::priority_queue``.

    Args:
        entries: a heap.
        long: in its place; it is turned into a heap where that has become better.
    """

    __slots__ = ("_entries", "_long")

    def __init__(
        self, entries: list[HeapEntry] | None = None, long: LongQueue | None = None
    ) -> None:
        self._entries = [] if entries is None else entries
        self._long = long
        self._settle_spent()

    def __len__(self) -> int:
        return len(self._entries) if self._long is None else len(self._long)

    def copy(self) -> TaskHeap:
        """A copy that shares nothing that changes."""
        return TaskHeap(self._entries.copy(), None if self._long is None else self._long.copy())

    @property
    def first(self) -> HeapEntry | None:
        """What would be popped."""
        if self._long is not None:
            return self._long.first()
        return self._entries[0] if self._entries else None

    def push(self, entry: HeapEntry) -> None:
        """Add a task."""
        if self._long is not None:
            self._long.push(entry)
        else:
            heapq.heappush(self._entries, entry)

    def pop(self) -> HeapEntry:
        """Take the first task out. Raises IndexError where there is none."""
        if self._long is None:
            return heapq.heappop(self._entries)
        entry = self._long.pop()
        self._settle_spent()
        return entry

    def find(self, task: QueuedTask) -> HeapEntry | None:
        """The entry of a task, None where it is not here."""
        if self._long is not None:
            return self._long.find(task)
        return next((entry for entry in self._entries if entry[1].task == task), None)

    def remove(self, task: QueuedTask) -> None:
        """Take a task out, if it is here."""
        if self._long is not None and self._long.remove_loose(task):
            self._settle_spent()
        else:
            self._keep([entry for entry in self.entries() if entry[1].task != task])

    def drop(self, unwanted: Callable[[int], bool]) -> None:
        """Take out the tasks of graph tasks."""
        if self._long is None:
            kept = [e for e in self._entries if not unwanted(e[1].task.graph_task)]
        else:
            remaining = self._long.without(unwanted)
            if remaining is None:
                return
            kept = remaining
        self._keep(kept)

    def graph_tasks(self) -> set[int]:
        """The graph tasks whose tasks are here."""
        if self._long is not None:
            return self._long.graph_tasks()
        return {tied.task.graph_task for _, tied in self._entries}

    def entries(self) -> list[HeapEntry]:
        """All entries, as a heap."""
        return self._entries if self._long is None else self._long.entries()

    def parted(self, limit: int, most: int) -> Parted | None:
        """None where more than ``most`` are placed, or none is loose.

        Args:
            limit: the largest key of a placed entry.
            most: so many at most are placed.
        """
        if self._long is not None:
            return self._long.parted(limit, most)
        placed: dict[int, HeapEntry] = {}
        loose: list[HeapEntry] = []
        waiting = [0]
        for place in waiting:
            if place < len(self._entries):
                entry = self._entries[place]
                if entry[0] > limit:
                    loose.append(entry)
                elif len(placed) == most:
                    return None
                else:
                    placed[place] = entry
                    waiting += 2 * place + 1, 2 * place + 2
        return Parted(placed, min(loose)) if loose else None

    def _keep(self, kept: list[HeapEntry]) -> None:
        if len(kept) != len(self):
            self._entries, self._long = kept, None
            heapq.heapify(kept)

    def _settle_spent(self) -> None:
        if self._long is not None and self._long.is_spent:
            self._entries, self._long = self._long.entries(), None
