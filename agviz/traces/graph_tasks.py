"""GraphTasks: the graph tasks of a trace, in columns of integers.

A run has very many of them. A row is made when it is asked for, and is not kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import compress
from operator import ge, le
from typing import TYPE_CHECKING, Final, NamedTuple, cast, overload

from agviz.traces.packed import unpack
from agviz.traces.rows import GraphTaskRow, GraphTaskStatus
from agviz_engine.events import GONE_BACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agviz.traces.database import Database
    from agviz.traces.packed import Column

FACTS: Final = (
    *("id", "parent", "parent_node", "depth", "keep_graph", "create_graph", "accumulate"),
    *("roots", "inputs", "thread", "nodes", "edges", "begin_seq", "begin_t", "end_seq", "end_t"),
    *("error", "message", "executed", "traced", "withdrawn"),
)
"""Columns of the table, and of what is stored of it."""
MEASURED: Final = ("loss", "forward", "nonfinite", "result", "root", "norm", "parameter", "factor")
"""Columns that are stored beside them: see :mod:`agviz.traces.task_facts`."""
_MAY_LACK: Final = {"end_seq", "end_t", "executed", "withdrawn"}
_NONE: Final = -1
"""In place of NULL."""
_PIECE: Final = 2_000
"""Rows that are in memory at once."""
_ID, _PARENT, _THREAD, _NODES = (FACTS.index(name) for name in ("id", "parent", "thread", "nodes"))
_BEGIN_SEQ, _BEGIN_T = (FACTS.index(name) for name in ("begin_seq", "begin_t"))
_END_SEQ, _END_T = (FACTS.index(name) for name in ("end_seq", "end_t"))
_ERROR, _MESSAGE, _EXECUTED = (FACTS.index(name) for name in ("error", "message", "executed"))
_ACCUMULATE, _ROOTS = (FACTS.index(name) for name in ("accumulate", "roots"))


class GraphTaskFacts(NamedTuple):
    """What the graph tasks of a file are made of."""

    columns: Sequence[Column]
    """As :data:`FACTS`; -1 where there is none."""
    errors: dict[int, str]
    """Types of exceptions, by id of the text."""
    messages: dict[int, str]
    start_ns: int
    """Of the recording."""
    open_end: GraphTaskStatus
    """Of those that neither finished nor failed."""


class GraphTasks(Sequence[GraphTaskRow]):
    """Graph tasks by id.

    Args:
        facts: of all that are in the file.
        places: of those that are meant, in order; None: all.
    """

    def __init__(self, facts: GraphTaskFacts, places: Sequence[int] | None = None) -> None:
        self._facts = facts
        self._places = places

    def __len__(self) -> int:
        return len(self._facts.columns[_ID] if self._places is None else self._places)

    @overload
    def __getitem__(self, place: int) -> GraphTaskRow: ...
    @overload
    def __getitem__(self, place: slice) -> GraphTasks: ...
    def __getitem__(self, place: int | slice) -> GraphTaskRow | GraphTasks:
        if isinstance(place, slice):
            places = range(len(self)) if self._places is None else self._places
            return GraphTasks(self._facts, places[place])
        where = place if self._places is None else self._places[place]
        return self._row([column[where] for column in self._facts.columns])

    def __iter__(self) -> Iterator[GraphTaskRow]:
        return map(self._row, zip(*map(self.column, range(len(FACTS))), strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"GraphTasks({list(self)})"

    def column(self, which: int) -> Column:
        """One fact of each, by its place in :data:`FACTS`."""
        column = self._facts.columns[which]
        if self._places is None:
            return column
        return array("q", map(column.__getitem__, self._places))

    @cached_property
    def ids(self) -> Column:
        """Numbers, in ascending order."""
        return self.column(_ID)

    @cached_property
    def callers(self) -> Column:
        """The thread that called each."""
        return self.column(_THREAD)

    @cached_property
    def threads(self) -> frozenset[int]:
        """The threads that called them."""
        return frozenset(self.callers)

    @cached_property
    def nodes(self) -> Column:
        """How many nodes each has."""
        return self.column(_NODES)

    @cached_property
    def begin_seqs(self) -> Column:
        """``seq`` of the event that began each."""
        return self.column(_BEGIN_SEQ)

    @cached_property
    def end_seqs(self) -> Column:
        """``seq`` of the event that ended each; -1: it did not end."""
        return self.column(_END_SEQ)

    @cached_property
    def errors(self) -> Column:
        """Text that says with what exception each failed; 0: it did not."""
        return self.column(_ERROR)

    @cached_property
    def accumulates(self) -> Column:
        """1: a call of backward, 0: of grad."""
        return self.column(_ACCUMULATE)

    @cached_property
    def spans_ns(self) -> tuple[Column, Column]:
        """When each began and ended, in ns since the recording began; -1: it did not end."""
        return self.column(_BEGIN_T), self.column(_END_T)

    @cached_property
    def kinds(self) -> list[tuple[bool, int, int]]:
        """Of each, whether gradients are accumulated, roots and nodes.

        So the steps of a generator and of its discriminator are distinguished.
        """
        known: dict[tuple[int, int, int], tuple[bool, int, int]] = {}
        every = zip(*map(self.column, (_ACCUMULATE, _ROOTS, _NODES)), strict=True)
        return [known.setdefault(each, (bool(each[0]), *each[1:])) for each in every]

    @cached_property
    def outermost(self) -> GraphTasks:
        """Those that no node of another began."""
        if max(self._facts.columns[_PARENT], default=_NONE) < 0:
            return self
        return self._where(parent < 0 for parent in self.column(_PARENT))

    @cached_property
    def inside(self) -> GraphTasks:
        """Those that a node of another began."""
        if self.outermost is self:
            return self[:0]
        return self._where(parent >= 0 for parent in self.column(_PARENT))

    @cached_property
    def accumulating(self) -> GraphTasks:
        """Those that write ``.grad``: calls of backward."""
        return self._where(self.accumulates)

    @cached_property
    def unfinished(self) -> GraphTasks:
        """Those that failed, or did not end."""
        if not any(self.errors) and min(self.spans_ns[1], default=0) >= 0:
            return self[:0]
        pairs = zip(self.errors, self.spans_ns[1], strict=True)
        return self._where(error or end == _NONE for error, end in pairs)

    def only(self, number: int) -> GraphTasks:
        """The one of an id; none, where it is none of them."""
        return self[bisect_left(self.ids, number) : bisect_right(self.ids, number)]

    def after(self, number: int) -> GraphTasks:
        """Those with a higher id."""
        return self[bisect_right(self.ids, number) :]

    def place(self, number: int) -> int | None:
        """Where one is among them, by its id; None: it is none of them."""
        found = bisect_left(self.ids, number)
        return found if found < len(self.ids) and self.ids[found] == number else None

    def get(self, number: int) -> GraphTaskRow | None:
        """One by its id; None: it is none of them."""
        place = self.place(number)
        return None if place is None else self[place]

    def has(self, number: int) -> bool:
        """Whether one is among them, by its id."""
        return self.place(number) is not None

    def root(self, number: int) -> int:
        """The outermost of those that a graph task of this id is inside of; itself, if of none."""
        while (parent := self._parents.get(number)) is not None:
            number = parent
        return number

    def family(self, number: int) -> list[int]:
        """A graph task, and those that are inside of it; parents come before their children."""
        found = {number: None}
        for inner, parent in self._parents.items():
            if parent in found:
                found[inner] = None
        return list(found)

    @cached_property
    def _parents(self) -> dict[int, int]:
        """By id, of those that are inside of another that is among them."""
        inside = zip(self.inside.ids, self.inside.column(_PARENT), strict=True)
        return {number: parent for number, parent in inside if self.has(parent)}

    def _where(self, wanted: Iterable[object]) -> GraphTasks:
        found = array("q", compress(range(len(self)), wanted))
        if self._places is not None:
            found = array("q", map(self._places.__getitem__, found))
        return GraphTasks(self._facts, found)

    def _row(self, values: Sequence[int]) -> GraphTaskRow:
        number, parent, parent_node, depth, *truths_and_counts = values
        keep, create, accumulate, roots, inputs, thread, nodes, edges, *rest = truths_and_counts
        begin_seq, begin_t, end_seq, end_t, error, message, executed, traced, withdrawn = rest
        start_ns, raised = self._facts.start_ns, self._facts.errors[error]
        if raised:
            is_back = raised == GONE_BACK
            status = GraphTaskStatus.WENT_BACK if is_back else GraphTaskStatus.FAILED
        elif end_t == _NONE:
            status = self._facts.open_end
        else:
            status = GraphTaskStatus.FINISHED
        return GraphTaskRow(
            *(number, parent, parent_node, depth, bool(keep), bool(create), bool(accumulate)),
            *(roots, inputs, thread, nodes, edges, begin_seq, begin_t + start_ns),
            None if end_seq == _NONE else end_seq,
            None if end_t == _NONE else end_t + start_ns,
            *(status, raised, self._facts.messages[message], executed, bool(traced)),
            None if withdrawn == _NONE else withdrawn,
        )


def read_columns(database: Database, condition: str = "TRUE", *parameters: int) -> list[Column]:
    """The facts of graph tasks from their table, by id.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    columns: list[array[int]] = [array("q") for _ in FACTS]
    first = -1 << 63
    while True:
        rows = database.numbers(
            f"SELECT {', '.join(FACTS)} FROM graph_task WHERE {condition} AND id >= ?"  # noqa: S608
            f" ORDER BY id LIMIT {_PIECE}",
            *parameters,
            first,
        )
        for name, column, piece in zip(FACTS, columns, zip(*rows, strict=True), strict=bool(rows)):
            if None not in piece:
                column.extend(cast("tuple[int, ...]", piece))
            elif name in _MAY_LACK:
                column.extend([_NONE if value is None else value for value in piece])
            else:
                raise database.damaged("a graph task lacks a fact")
        if len(rows) < _PIECE:
            return [*columns]
        first = columns[_ID][-1] + 1


def stored_columns(database: Database) -> list[Column] | None:
    """The columns that a closed recording holds, :data:`FACTS` first; None: it holds none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    parts = database.value("SELECT count(*) FROM run")
    if not parts:
        return None
    try:
        columns = unpack(database.joined("run", 0, parts), len(FACTS) + len(MEASURED))
    except ValueError as error:
        raise database.damaged(error) from error
    if len(set(map(len, columns))) != 1:
        raise database.damaged("columns of graph tasks are not of one length")
    return columns


def check_columns(columns: Sequence[Column], damaged: Callable[[object], Exception]) -> None:
    """Raise the error where these can't be the facts of graph tasks."""
    ids, parents = columns[_ID], columns[_PARENT]
    if any(map(ge, ids, ids[1:])):
        raise damaged("graph tasks are out of order")
    if any(map(le, ids, parents)):
        raise damaged("a graph task is inside of a later one")


def count_executed(
    columns: list[Column], count: Callable[[dict[int, int]], dict[int, int]]
) -> None:
    """Fill in how many nodes were executed where the file does not say it.

    Args:
        columns: of the facts.
        count: counts them, from ``seq`` of the GraphTaskBegun of each graph task.
    """
    executed = columns[_EXECUTED]
    if _NONE in executed:
        places = [place for place, known in enumerate(executed) if known == _NONE]
        begins = columns[_BEGIN_SEQ]
        found = count({columns[_ID][place]: begins[place] for place in places})
        filled = array("q", executed)
        for place in places:
            filled[place] = found[columns[_ID][place]]
        columns[_EXECUTED] = filled


def error_ids(columns: Sequence[Column]) -> tuple[set[int], set[int]]:
    """Ids of the texts that say of which types exceptions were, and of their messages."""
    return set(columns[_ERROR]), set(columns[_MESSAGE])
