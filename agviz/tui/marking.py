"""Which nodes breakpoints stop at, as far as that is known before they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agviz.tui.model import Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.debugger.breakpoints import Breakpoint
    from agviz.traces.reader import Trace
    from agviz.tui.model import Key, LoadedPass


@dataclass(frozen=True)
class Marked:
    """The nodes of a graph task that breakpoints are at."""

    key: Key
    marks: dict[int, Mark]


def find_marks(breakpoints: Sequence[Breakpoint]) -> Callable[[Trace, LoadedPass], Marked]:
    """A question for the reader thread. One that says nothing of nodes marks none."""
    wanted = [each for each in breakpoints if each.is_of_a_node]

    def question(trace: Trace, recording: LoadedPass) -> Marked:
        marks: dict[int, Mark] = {}
        if wanted:
            for node in trace.identities(recording.key.graph_task):
                here = {mark_of(each) for each in wanted if each.asks_for(node)}
                for mark in Mark:
                    if mark in here:
                        marks[node.node] = mark
                        break
        return Marked(recording.key, marks)

    return question


def mark_of(each: Breakpoint) -> Mark:
    """How a breakpoint is shown."""
    if not each.enabled:
        return Mark.DISABLED
    if each.log:
        return Mark.LOGS
    return Mark.ONCE if each.temporary else Mark.STOPS
