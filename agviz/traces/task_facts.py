"""TaskFacts: what was measured of each graph task as a whole, in columns beside GraphTasks.

A closed recording holds both in one blob, so that a run of very many passes is listed at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from agviz.traces import nonfinite, roots, run_facts
from agviz.traces.doubles import Doubles
from agviz.traces.graph_tasks import FACTS, MEASURED
from agviz.traces.packed import pack
from agviz.traces.schema import PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.packed import Column

N = TypeVar("N", int, float)

_LOSS, _FORWARD, _NONFINITE, _RESULT, _ROOT, _NORM, _PARAMETER, _FACTOR = range(
    len(FACTS), len(FACTS) + len(MEASURED)
)
_NONE: Final = -1


class PassNorms(NamedTuple):
    """What came to the leaves in each of the outermost graph tasks, in their order."""

    norms: Doubles
    """Euclidean norm of all gradients that leaves had after it; NaN where one is not finite."""
    parameters: Column
    """Text that names the parameter whose gradient differs most from the pass before; 0: none."""
    factors: Doubles
    """The norm of its gradient by the one before."""


class Known(Mapping[int, N]):
    """What is known of graph tasks, by their ids.

    Args:
        tasks: the graph tasks.
        values: of each of them; None: it is not known.
    """

    def __init__(self, tasks: GraphTasks, values: Callable[[int], N | None]) -> None:
        self._tasks = tasks
        self._value: Callable[[int], N | None] = values

    def __getitem__(self, graph_task: int) -> N:
        place = self._tasks.place(graph_task)
        found = None if place is None else self._value(place)
        if found is None:
            raise KeyError(graph_task)
        return found

    def __iter__(self) -> Iterator[int]:
        numbered = enumerate(self._tasks.ids)
        return (number for place, number in numbered if self._value(place) is not None)

    def __len__(self) -> int:
        return sum(self._value(place) is not None for place in range(len(self._tasks)))


class TaskFacts:
    """Each column is read when it is asked for, unless it was stored.

    Args:
        database: the file.
        contents: its graph tasks.
    """

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._stored = contents.stored

    @cached_property
    def losses(self) -> Doubles:
        """The one number that backward was called on."""
        if self._stored:
            return Doubles.of_bits(self._stored[_LOSS])
        found = run_facts.losses(self._database)
        return Doubles.of(map(found.get, self._contents.graph_tasks.ids))

    @cached_property
    def forwards(self) -> Column:
        """When the forward began, in ns since the recording began; -1: that is not known."""
        return self._column(_FORWARD, lambda: run_facts.forwards(self._database))

    @cached_property
    def nonfinite(self) -> Column:
        """``seq`` of the event of the first gradient with NaN or infinities; -1: there is none."""
        return self._column(_NONFINITE, lambda: nonfinite.firsts(self._database, self._contents))

    @cached_property
    def results(self) -> Sequence[int]:
        """The graph tasks that left such a gradient in a leaf, or gave it back, by id."""
        return self._flagged(_RESULT, self._read_results)

    @cached_property
    def roots(self) -> Sequence[int]:
        """The graph tasks that were called on a tensor that is not finite, by id."""
        return self._flagged(_ROOT, lambda: roots.nonfinite(self._database, self._contents))

    @cached_property
    def parameters(self) -> dict[int, str]:
        """Names of the parameters of :attr:`norms`, by id of the text."""
        numbers = set(self._stored[_PARAMETER]) - {0} if self._stored else ()
        return {number: self._contents.name(number) for number in numbers}

    @property
    def norms(self) -> PassNorms | None:
        """None: they are not stored, and have to be worked out."""
        if not self._stored:
            return None
        tasks = self._contents.graph_tasks
        norms, factors = (Doubles.of_bits(self._stored[each]) for each in (_NORM, _FACTOR))
        parameters = self._stored[_PARAMETER]
        if len(tasks.outermost) < len(tasks):
            places = [tasks.place(number) or 0 for number in tasks.outermost.ids]
            norms, factors = norms.at(places), factors.at(places)
            parameters = array("q", map(parameters.__getitem__, places))
        return PassNorms(norms, parameters, factors)

    def to_store(self, norms: PassNorms) -> Iterator[tuple[int, bytes]]:
        """Rows for the table ``run``.

        Args:
            norms: of all passes.
        """
        tasks = self._contents.graph_tasks
        blob = pack(
            [
                *map(tasks.column, range(len(FACTS))),
                self.losses.bits,
                self.forwards,
                self.nonfinite,
                self._flags(self.results),
                self._flags(self.roots),
                *self._of_all(norms),
            ]
        )
        for part, begin in enumerate(range(0, len(blob), PART_BYTES)):
            yield part, blob[begin : begin + PART_BYTES]

    def _of_all(self, norms: PassNorms) -> Iterator[Column]:
        """What is known of outermost graph tasks, with the others between them."""
        tasks = self._contents.graph_tasks
        every = Doubles(len(tasks)), Doubles(len(tasks))
        parameters = array("q", [0]) * len(tasks)
        for number, norm, parameter, factor in zip(tasks.outermost.ids, *norms, strict=True):
            place = tasks.place(number) or 0
            parameters[place] = parameter
            for doubles, value in zip(every, (norm, factor), strict=True):
                if value is not None:
                    doubles[place] = value
        yield from (every[0].bits, parameters, every[1].bits)

    def _column(self, which: int, read: Callable[[], Mapping[int, int]]) -> Column:
        if self._stored:
            return self._stored[which]
        found = read()
        return array("q", [found.get(number, _NONE) for number in self._contents.graph_tasks.ids])

    def _flagged(self, which: int, read: Callable[[], Sequence[int]]) -> Sequence[int]:
        if not self._stored:
            return read()
        return [*compress(self._contents.graph_tasks.ids, self._stored[which])]

    def _read_results(self) -> list[int]:
        # A recording that grows may have more graph tasks by now than when these were read.
        first = zip(self._contents.graph_tasks.ids, self.nonfinite, strict=False)
        affected = [number for number, seq in first if seq != _NONE]
        return nonfinite.results(self._database, self._contents, affected)

    def _flags(self, numbers: Iterable[int]) -> Column:
        wanted = set(numbers)
        return array("q", [number in wanted for number in self._contents.graph_tasks.ids])
