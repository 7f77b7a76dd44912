"""The backward passes of a file in their order, which are marked, and where in them that is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.outside import outside
from agviz.analysis.pass_marks import PassMark, is_measured, marks
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.reader import Trace

_OPENED: Final = {
    PassMark.FAILED: "opened at the first failure",
    PassMark.CUT: "opened where the recording was cut off",
    PassMark.NON_FINITE: "opened at the first non-finite gradient",
    PassMark.LOSS: "opened where the loss is not finite",
}


_SAID: Final = {
    PassMark.FAILED: "failed",
    PassMark.CUT: "did not end",
    PassMark.LOSS: "began with a loss that is not finite",
}


CUT_BEHIND: Final = "opened at the end: cut off behind it"


class PassPosition(NamedTuple):
    """A moment of a graph task."""

    graph_task: int
    seq: int
    """Of the event behind which it is; -1: the beginning."""


class Order:
    """Who comes before whom.

    Args:
        tasks: the graph tasks.
    """

    def __init__(self, tasks: GraphTasks) -> None:
        self._tasks = tasks
        self.ids = tasks.ids
        self.outermost = tasks.outermost.ids

    def name(self, graph_task: int) -> str:
        """``30 of 40``; where not all were recorded, ``20, number 3 of 5``; alone, ``0``."""
        total = len(self.ids)
        if total < 2:
            return f"{graph_task}"
        if self.ids[-1] == total - 1:
            return f"{graph_task:,} of {total:,}"
        return f"{graph_task:,}, number {bisect_right(self.ids, graph_task):,} of {total:,}"

    def has(self, graph_task: int) -> bool:
        """Whether there is a graph task of this number."""
        return self._tasks.has(graph_task)

    def root(self, graph_task: int) -> int:
        """The pass that no node of another began, and that a graph task is or is inside of."""
        return self._tasks.root(graph_task)

    def parent(self, graph_task: int) -> int | None:
        """The graph task a node of which began this one."""
        task = self._tasks.get(graph_task)
        return None if task is None or task.parent < 0 else task.parent

    def beside(self, graph_task: int, by: int) -> int | None:
        """The next such pass (1), or the previous one (-1); None: it is the last, the first."""
        return _beside(self.outermost, self.root(graph_task), by)


def _beside(numbers: Sequence[int], number: int, by: int) -> int | None:
    place = bisect_right(numbers, number) if by > 0 else bisect_left(numbers, number) - 1
    return numbers[place] if 0 <= place < len(numbers) else None


class Findings:
    """What is unusual in a file, as of one of its versions."""

    def __init__(self, trace: Trace) -> None:
        self.version = trace.version
        found = marks(trace)
        self.nonfinite = trace.nonfinite_graph_tasks()
        """Graph tasks with such a gradient, in order of the first; reentrant ones, too."""
        inside = dict.fromkeys(self.nonfinite, PassMark.NON_FINITE)
        self.marks: Mapping[int, PassMark] = {
            **{
                number: mark
                for number, mark in inside.items()
                if trace.graph_task(number).parent >= 0
            },
            **found,
        }
        """By graph task, reentrant ones included."""
        self.is_checked = is_measured(trace)
        """Whether gradients were looked at for NaN and infinities."""
        self.wrong = [number for number, mark in found.items() if mark.is_wrong]
        """Outermost passes with which something is not as it should be, by id."""

    def beside(self, root: int, by: int) -> int | None:
        """The next outermost pass that is marked (1), or the previous one (-1)."""
        return _beside(self.wrong, root, by)

    @property
    def first(self) -> int | None:
        """The first pass that is marked; one that is just under way is not meant."""
        return self.wrong[0] if self.wrong else None

    def why(self, graph_task: int) -> str:
        """In a few words, why one is shown what is marked of a pass."""
        return why_opened(self.marks[graph_task])


def why_opened(mark: PassMark) -> str:
    """In a few words, why one is shown the place of a mark."""
    return _OPENED.get(mark, f"opened at the first pass that is {mark}")


def marked_place(trace: Trace, graph_task: int, mark: PassMark) -> PassPosition:
    """Where in a pass, or in one inside it, one sees why it is marked."""
    family = trace.family(graph_task)
    if mark is PassMark.CUT:
        # The innermost one that has not ended is where the program was.
        open_ones = [number for number in family if trace.graph_task(number).end_seq is None]
        number = open_ones[-1] if open_ones else graph_task
        last = trace.events(number, trace.event_count(number) - 1, 1)
        return PassPosition(number, last[0].seq if last else -1)
    found = []
    for number in family:
        seq = None
        if mark is PassMark.NON_FINITE:
            seq = trace.first_nonfinite_flow(number)
        elif mark is PassMark.FAILED:
            seq = trace.first_failure(number)
        if seq is not None:
            found.append(PassPosition(number, seq))
    return min(found, key=lambda place: place.seq, default=PassPosition(graph_task, -1))


def cut_behind(trace: Trace) -> PassPosition | None:
    """The end of the last pass, where the process was ended from outside after it; else None."""
    between = outside(trace)
    if between is None or between.is_growing or between.is_exit or between.graph_task is None:
        return None
    number = between.graph_task
    last = trace.events(number, trace.event_count(number) - 1, 1)
    return PassPosition(number, last[0].seq if last else -1)


def others(findings: Findings, order: Order, graph_task: int | None) -> str:
    """What is to be said of the other passes, in sentences; empty: nothing.

    Args:
        findings: what is unusual in the file.
        order: of its passes.
        graph_task: the one that is left out; None: none.
    """
    root = None if graph_task is None else order.root(graph_task)
    by_mark: dict[PassMark, list[int]] = {}
    for number in order.outermost:
        mark = findings.marks.get(number)
        if mark is not None and mark.is_wrong and number != root:
            by_mark.setdefault(mark, []).append(number)
    return " ".join(_said(mark, order, numbers) for mark, numbers in by_mark.items())


def _said(mark: PassMark, order: Order, numbers: Sequence[int]) -> str:
    first = f"pass {order.name(numbers[0])}"
    more = f" and {plural(len(numbers) - 1, 'other')}" if len(numbers) > 1 else ""
    if mark is PassMark.NON_FINITE:
        return f"Gradients are not finite in {first}{more}: x goes there."
    are = "are" if more else "is"
    return f"P{first[1:]}{more} {_SAID.get(mark, f'{are} marked “{mark}”')}: c and C go there."
