"""RunTable: every backward pass of a recording as a row, to see since when something is wrong.

It is made of columns, and a row is made when it is asked for, so that a run of 100,000 passes is
listed at once. Gradient norms of a recording that was not closed are read piece by piece
(:meth:`RunTable.read_on`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.pass_marks import PassMark, marks
from agviz.traces.doubles import Doubles
from agviz.traces.run_norms import RunNorms, change_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow


class LargestChange(NamedTuple):
    """The parameter whose gradient differs most from that of the pass before, of its kind."""

    parameter: str
    factor: float
    """Its norm by the one before; infinite or NaN where it was, or is not, finite, or 0."""

    @property
    def size(self) -> float:
        """How large it is, the same for ten times more and a tenth; infinite where not finite."""
        return change_size(self.factor)


class RunRow(NamedTuple):
    """One call of backward or grad that no node of another made."""

    task: GraphTaskRow
    mark: PassMark | None
    """What is unusual; None: it came to an end, and all that was measured is finite."""
    loss: float | None
    """What backward was called on, where that is one number; None: not, or not measured."""
    forward_ns: int | None
    """From the first call of a module to the call of backward; None: not known."""
    took_ns: int | None
    """None: it did not end."""
    norm: float | None
    """Euclidean norm of all gradients that leaves had after it; NaN where one is not finite; None:
    not measured, or not yet read."""
    change: LargestChange | None
    """None: nothing to compare, or not yet read."""


class Bucket(NamedTuple):
    """What some passes that follow each other have."""

    most: float | None
    """The largest finite value; None: there is none."""
    is_bad: bool
    """Whether some value is not finite."""


def bucketed(values: Doubles, count: int) -> list[Bucket]:
    """At most ``count`` buckets, which share the values out evenly, in their order."""
    found = []
    for begin, end in _shares(len(values), count):
        finite = values.finite(begin, end)
        missing = end - begin - len(finite)
        is_bad = bool(missing) and missing > values.count_unknown(begin, end)
        found.append(Bucket(max(finite, default=None), is_bad))
    return found


def merged(buckets: Sequence[Bucket], count: int) -> list[Bucket]:
    """At most ``count`` buckets of what these hold."""
    found = []
    for begin, end in _shares(len(buckets), count):
        some = buckets[begin:end]
        finite = [one.most for one in some if one.most is not None]
        found.append(Bucket(max(finite, default=None), any(one.is_bad for one in some)))
    return found


def _shares(total: int, count: int) -> Iterator[tuple[int, int]]:
    count = min(count, total)
    edges = [total * place // count for place in range(count + 1)] if count else []
    return itertools.pairwise(edges)


class RunTable:
    """The rows of a trace as it is now, in order of time.

    Args:
        trace: stays open as long as norms are read.
        norms: what was read of them of the trace as it was; None: nothing.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace, norms: RunNorms | None = None) -> None:
        self._version = trace.version
        self._reading = RunNorms(trace) if norms is None else norms
        if norms is not None:
            norms.renew()
        self._known = self._reading.known
        every = trace.graph_tasks
        self._root = every.root
        self.tasks = every.outermost
        """Of the rows."""
        self._marks: Mapping[int, PassMark] = marks(trace)
        facts = trace.task_facts
        self.losses = facts.losses
        """Of each pass, as :attr:`RunRow.loss`."""
        self._forwards: Sequence[int] = facts.forwards
        if len(self.tasks) < len(every):
            places = [every.place(number) or 0 for number in self.tasks.ids]
            self.losses = self.losses.at(places)
            self._forwards = [self._forwards[place] for place in places]
        wrong = (self.place(number) for number, mark in self._marks.items() if mark.is_wrong)
        self.wrong = sorted({place for place in wrong if place is not None})
        """The rows that something is wrong with; a pass that is under way is not meant."""

    def renewed(self, trace: Trace) -> RunTable:
        """The table with what has come to a file that grows.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        return self if trace.version == self._version else RunTable(trace, self._reading)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, place: int) -> RunRow:
        task = self.tasks[place]
        begin, end = (column[place] for column in self.tasks.spans_ns)
        begun = self._forwards[place]
        return RunRow(
            task=task,
            mark=self._marks.get(task.id),
            loss=self.losses[place],
            forward_ns=None if begun < 0 else begin - begun,
            took_ns=None if end < 0 else end - begin,
            norm=self.norms[place],
            change=self.change(place),
        )

    def __iter__(self) -> Iterator[RunRow]:
        return map(self.__getitem__, range(len(self)))

    @property
    def norms(self) -> Doubles:
        """Of each pass, as :attr:`RunRow.norm`."""
        return self._known.norms

    def change(self, place: int) -> LargestChange | None:
        """Of a row, as :attr:`RunRow.change`."""
        factor = self._known.factors[place]
        if factor is None:
            return None
        return LargestChange(self._reading.names[self._known.parameters[place]], factor)

    def times(self) -> Doubles:
        """Of each pass, as :attr:`RunRow.took_ns`."""
        begins, ends = self.tasks.spans_ns
        pairs = zip(begins, ends, strict=True)
        return Doubles.of(None if end < 0 else end - begin for begin, end in pairs)

    def change_sizes(self) -> Doubles:
        """Of each pass, :attr:`LargestChange.size`."""
        factors = self._known.factors
        return Doubles.of(None if factor is None else change_size(factor) for factor in factors)

    def likeness(self) -> list[object]:
        """Of each pass, what is the same for passes that differ in nothing but numbers."""
        facts = self.tasks.accumulates, self.tasks.errors, self._known.parameters
        found: list[object] = [*zip(*facts, strict=True)]
        bad = set(self.norms.nonfinite())
        marked = {self.tasks.place(number): mark for number, mark in self._marks.items()}
        for place in bad.union(place for place in marked if place is not None):
            found[place] = found[place], marked.get(place), place in bad
        return found

    def place(self, graph_task: int) -> int | None:
        """The row of a graph task, or of the pass it is inside of; None: there is none."""
        return self.tasks.place(self._root(graph_task))

    @property
    def is_read(self) -> bool:
        """Whether all norms were read."""
        return self._reading.is_read

    def read_on(self, seconds: float) -> bool:
        """Read norms for about so long; return whether there were any left to read.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        return self._reading.read_on(seconds)
