"""Which of the program's backward passes are in the file, in words."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.words.units import backward_passes

if TYPE_CHECKING:
    from agviz.traces.reader import Trace

ALL_PASSES: Final = "--agviz-keep=200MB"
"""What has the pytest plugin record all passes of a test, and keep those that fail."""


class Coverage(NamedTuple):
    """Numbers of backward passes, reentrant ones apart."""

    recorded: int
    first: int
    """In the file, before any that was left out."""
    between: int
    """In the file, with some left out before and after them: they failed or were not finite."""
    last: int
    """In the file, after all that were left out."""
    thinned: str = ""
    """Which passes were recorded at all, where not all were, in words."""

    @property
    def left_out(self) -> int:
        """Not in the file."""
        return self.recorded - self.first - self.between - self.last

    def __str__(self) -> str:
        if not self.left_out:
            return ""
        if self.thinned:
            kept = self.recorded - self.left_out
            return (
                f"of {backward_passes(self.recorded, 0)} the file has {kept:,}: {self.thinned} were"
                " recorded, the others ran on torch's own engine, unseen;"
                f" {ALL_PASSES} records all"
            )
        between = f", {self.between:,} between that failed or were not finite" * (self.between > 0)
        return (
            f"of {backward_passes(self.recorded, 0)} the file keeps the"
            f" first {self.first:,}{between} and the last {self.last:,}; with a larger --max-bytes"
            " it keeps more"
        )


def coverage(trace: Trace) -> Coverage:
    """What is in the file; cheap."""
    kept = trace.graph_tasks.outermost.ids
    gone = trace.left_out
    if not gone:
        return Coverage(len(kept), len(kept), 0, 0)
    first = bisect_left(kept, gone[0].first)
    last = len(kept) - bisect_right(kept, gone[-1].last)
    recorded = len(kept) + sum(each.passes for each in gone)
    between = len(kept) - first - last
    return Coverage(recorded, first, between, last, trace.meta.thinned)
