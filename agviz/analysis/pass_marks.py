"""What is unusual about each backward pass of a recording, in a word.

A list of passes needs no more; what happened in one, and why, is in ``verdict.py``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from agviz.traces.reader import Trace


class PassMark(StrEnum):
    """What is unusual about a backward pass."""

    FAILED = "failed"
    CUT = "cut off"
    UNDER_WAY = "under way"
    NON_FINITE = "not finite"
    """A gradient of a parameter, or a result of grad."""
    LOSS = "loss not finite"
    WENT_BACK = "went back"
    """A debugger had it go back to an earlier node; it ran on as the next pass."""

    @property
    def is_wrong(self) -> bool:
        """Whether something is not as it should be."""
        return self not in {PassMark.UNDER_WAY, PassMark.WENT_BACK}


def marks(trace: Trace) -> dict[int, PassMark]:
    """The outermost backward passes that did not simply come to a finite end, by graph task.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    tasks = trace.graph_tasks
    found: dict[int, PassMark] = {}
    for number in trace.nonfinite_roots():
        found[tasks.root(number)] = PassMark.LOSS
    for number in trace.nonfinite_results():
        found[tasks.root(number)] = PassMark.NON_FINITE
    ends = {
        GraphTaskStatus.RUNNING: PassMark.UNDER_WAY,
        GraphTaskStatus.CUT: PassMark.CUT,
        GraphTaskStatus.FAILED: PassMark.FAILED,
        GraphTaskStatus.WENT_BACK: PassMark.WENT_BACK,
    }
    for task in tasks.unfinished:
        mark = ends.get(task.status)
        if mark is not None:
            found[tasks.root(task.id)] = mark
    return dict(sorted(found.items()))


def is_measured(trace: Trace) -> bool:
    """Whether gradients were looked at for NaN and infinities."""
    return trace.meta.values != "none" or trace.has_checks()
