"""NodeTasks as they stand in the heap of a replayed ReadyQueue."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from agviz_engine.events import NO_GRAPH_TASK

NO_NODE: Final = -1
ACCUMULATE_GRAD: Final = 2**64 - 1
"""Sequence number of all AccumulateGrad nodes; in files and events it is None."""


class QueuedTask(NamedTuple):
    """A NodeTask in a ReadyQueue."""

    graph_task: int
    node: int
    """-1 for a task without a node: a shutdown."""


class Tied:
    """A NodeTask as it stands behind its key in a heap: less than no other.

    ``heapq`` then sifts exactly as ``std::priority_queue`` does, so that ties (AccumulateGrad nodes
    all have the same sequence number) leave in torch's order.
    """

    __slots__ = ("task",)

    def __init__(self, task: QueuedTask) -> None:
        self.task = task

    def __lt__(self, _other: Tied) -> bool:
        return False


HeapEntry: TypeAlias = tuple[int, Tied]
"""Key and task: the smallest key is popped first."""

SHUTDOWN: Final[HeapEntry] = (-(1 << 200), Tied(QueuedTask(NO_GRAPH_TASK, NO_NODE)))
"""It leaves the queue before everything else."""


def key(depth: int, sequence_nr: int | None) -> int:
    """Of a NodeTask: deeper ones first, then later-made ones.

    Args:
        depth: reentrant depth of its graph task.
        sequence_nr: of its node; None: AccumulateGrad.
    """
    number = ACCUMULATE_GRAD if sequence_nr is None else sequence_nr
    return -((depth << 64) + number)
