"""TaskHeap: the NodeTasks of one ReadyQueue in torch's order, ties included."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agviz.traces.rows import QueuedTask

ACCUMULATE_GRAD: Final = 2**64 - 1
"""Sequence number of all AccumulateGrad nodes; in files and events it is None."""


def priority(depth: int, sequence_nr: int | None) -> int:
    """Key of a NodeTask, the smallest is popped first: deeper ones, then later-made ones.

    Args:
        depth: reentrant depth of its graph task.
        sequence_nr: of its node; None: AccumulateGrad.
    """
    number = ACCUMULATE_GRAD if sequence_nr is None else sequence_nr
    return -((depth << 64) + number)


class _Tied:
    """A NodeTask behind its key in a heap: less than no other.

    ``heapq`` then sifts exactly as ``std::priority_queue`` does, so that ties (AccumulateGrad nodes
    all have the same sequence number) leave in torch's order.
    """

    __slots__ = ("task",)

    def __init__(self, task: QueuedTask) -> None:
        self.task = task

    def __lt__(self, _other: _Tied) -> bool:
        return False


class TaskHeap:
    """NodeTasks that leave as they leave torch's ``std::priority_queue``."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int | tuple[int, ...], _Tied]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, task: QueuedTask) -> bool:
        return any(tied.task == task for _, tied in self._entries)

    def copy(self) -> TaskHeap:
        """A copy that shares nothing that changes."""
        twin = TaskHeap()
        twin._entries = self._entries.copy()
        return twin

    @property
    def first(self) -> QueuedTask | None:
        """The task that would be popped."""
        return self._entries[0][1].task if self._entries else None

    def push(self, key: int | tuple[int, ...], task: QueuedTask) -> None:
        """Add a task.

        Args:
            key: its :func:`priority`, or another key of the kind that all tasks here have.
            task: the task.
        """
        heapq.heappush(self._entries, (key, _Tied(task)))

    def pop(self) -> QueuedTask:
        """Take the first task out. Raises IndexError where there is none."""
        return heapq.heappop(self._entries)[1].task

    def remove(self, task: QueuedTask) -> None:
        """Take a task out, if it is here."""
        if self.first == task:
            self.pop()
        else:
            self._keep([entry for entry in self._entries if entry[1].task != task])

    def drop(self, graph_task: int) -> None:
        """Take out the tasks of a graph task."""
        self._keep([e for e in self._entries if e[1].task.graph_task != graph_task])

    def order(self) -> list[QueuedTask]:
        """All tasks in the order in which they would be popped."""
        rest = self.copy()
        return [rest.pop() for _ in range(len(rest))]

    def _keep(self, kept: list[tuple[int | tuple[int, ...], _Tied]]) -> None:
        if len(kept) != len(self._entries):
            self._entries = kept
            heapq.heapify(kept)
