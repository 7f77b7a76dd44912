"""RunTable: every backward pass of a recording as a row, to see since when something is wrong.

Gradient norms take a look at everything that was measured. They are read piece by piece
(:meth:`RunTable.read_on`), so that a run of 100,000 passes is listed at once.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from agviz.analysis.leaf_reading import LeafReading
from agviz.analysis.verdict import PassMark, marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow, LeafNorm

T = TypeVar("T")

_Kind: TypeAlias = tuple[bool, int, int]
"""Whether gradients are accumulated, roots and nodes: the steps of a generator and of its
discriminator are compared with those of their own kind."""


class LargestChange(NamedTuple):
    """The parameter whose gradient differs most from that of the pass before, of its kind."""

    parameter: str
    factor: float
    """Its norm by the one before; infinite or NaN where it was, or is not, finite, or 0."""

    @property
    def size(self) -> float:
        """How large it is, the same for ten times more and a tenth; infinite where not finite."""
        if not 0 < self.factor < math.inf:
            return math.inf
        return max(self.factor, 1 / self.factor)


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


def bucketed(values: Sequence[float | None], count: int) -> list[Bucket]:
    """At most ``count`` buckets, which share the values out evenly, in their order."""
    found = []
    for some in _shared_out(values, count):
        known = [value for value in some if value is not None]
        finite = [value for value in known if math.isfinite(value)]
        found.append(Bucket(max(finite, default=None), len(finite) < len(known)))
    return found


def merged(buckets: Sequence[Bucket], count: int) -> list[Bucket]:
    """At most ``count`` buckets of what these hold."""
    found = []
    for some in _shared_out(buckets, count):
        finite = [one.most for one in some if one.most is not None]
        found.append(Bucket(max(finite, default=None), any(one.is_bad for one in some)))
    return found


def _shared_out(values: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    count = min(count, len(values))
    edges = [len(values) * place // count for place in range(count + 1)] if count else []
    return (values[begin:end] for begin, end in itertools.pairwise(edges))


class RunTable:
    """The rows of a trace, in order of time.

    Args:
        trace: stays open as long as this is used.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._leaves = LeafReading(trace)
        self._squares: dict[int, float] = {}
        """By pass, the sum of the squares of norms."""
        self._last: dict[tuple[_Kind | None, str], float] = {}
        """By kind of pass and parameter, the norm after the last one that was read; None: of any
        kind."""
        self._changes: dict[int, LargestChange] = {}
        self._version = -1
        """Of the file, that is listed."""
        self.renew()

    def renew(self) -> None:
        """Take over what has come to a file that grows.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        if self._trace.version == self._version:
            return
        self._version = self._trace.version
        trace = self._trace
        self._leaves.renew()
        self._marks: Mapping[int, PassMark] = marks(trace)
        self._losses = trace.losses()
        self._forwards = trace.forwards()

    @property
    def tasks(self) -> list[GraphTaskRow]:
        """Of the rows."""
        return self._leaves.tasks

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, place: int) -> RunRow:
        task = self.tasks[place]
        begun = self._forwards.get(task.id)
        square = self._squares.get(task.id)
        return RunRow(
            task=task,
            mark=self._marks.get(task.id),
            loss=self._losses.get(task.id),
            forward_ns=None if begun is None else task.begin_ns - begun,
            took_ns=None if task.end_ns is None else task.end_ns - task.begin_ns,
            norm=None if square is None else math.sqrt(square),
            change=self._changes.get(task.id),
        )

    def __iter__(self) -> Iterator[RunRow]:
        return map(self.__getitem__, range(len(self)))

    def losses(self) -> list[float | None]:
        """Of each pass, as :attr:`RunRow.loss`."""
        return [self._losses.get(task.id) for task in self.tasks]

    def norms(self) -> list[float | None]:
        """Of each pass, as :attr:`RunRow.norm`."""
        squares = [self._squares.get(task.id) for task in self.tasks]
        return [None if square is None else math.sqrt(square) for square in squares]

    def times(self) -> list[float | None]:
        """Of each pass, as :attr:`RunRow.took_ns`."""
        return [
            None if task.end_ns is None else float(task.end_ns - task.begin_ns)
            for task in self.tasks
        ]

    def marked(self) -> list[bool]:
        """Whether something is wrong with each pass."""
        marks = (self._marks.get(task.id) for task in self.tasks)
        return [mark is not None and mark.is_wrong for mark in marks]

    def place(self, graph_task: int) -> int | None:
        """The row of a graph task, or of the pass it is inside of; None: there is none."""
        return self._leaves.place(graph_task)

    @property
    def first_marked(self) -> int | None:
        """The row of the first pass that something is wrong with; one under way is not meant."""
        wrong = [number for number, mark in self._marks.items() if mark.is_wrong]
        return self.place(min(wrong)) if wrong else None

    @property
    def is_read(self) -> bool:
        """Whether all norms were read."""
        return self._leaves.is_read

    def read_on(self, seconds: float) -> bool:
        """Read norms for about so long; return whether there were any left to read.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        until = time.perf_counter() + seconds
        begin = self._leaves.until
        while not self.is_read and time.perf_counter() < until:
            for task, leaves in self._leaves.read_piece():
                self._add(task, leaves)
        return self._leaves.until > begin

    def _add(self, task: GraphTaskRow, leaves: Iterable[LeafNorm]) -> None:
        square = 0.0
        kind = task.accumulate_grad, task.roots, task.nodes
        for leaf in leaves:
            square += leaf.norm * leaf.norm
            if leaf.parameter:
                self._compare(task.id, kind, leaf.parameter, leaf.norm)
        self._squares[task.id] = square

    def _compare(self, graph_task: int, kind: _Kind, parameter: str, norm: float) -> None:
        last = self._last.get((None, parameter))
        before = self._last.get((kind, parameter), last)
        self._last[None, parameter] = self._last[kind, parameter] = norm
        if before is None or before == norm or (math.isnan(before) and math.isnan(norm)):
            return
        is_from_zero = not before and math.isfinite(norm)
        factor = math.inf if is_from_zero else norm / (before or math.nan)
        change = LargestChange(parameter, factor)
        known = self._changes.get(graph_task)
        if known is None or change.size > known.size:
            self._changes[graph_task] = change
