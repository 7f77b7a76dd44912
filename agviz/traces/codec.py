"""Rows of the ``event`` table and the events they expand to: which field is in which column.

Every event starts with ``seq``, ``time_ns``, ``thread`` and ``graph_task``, which have columns of
their own; so have the kind and ``node``. The other fields of a kind fill the columns ``a`` to ``e``
in their order. A step of :mod:`agviz_engine.emissions` is one row and two events. GraphTaskBegun
has more fields than there are columns: they are facts about its graph task and are in that table.

On their way to the file events are rows of :data:`WIDTH` values, see :mod:`agviz.record.journal`.
"""

from __future__ import annotations

import functools
import itertools
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz_engine import emissions
from agviz_engine.emissions import ABSENT, DELIVERED, ENDED, EXPANSION, JOURNALED, ROW, TOOK
from agviz_engine.events import (
    EVENT_TYPES,
    DependencyDecremented,
    Event,
    GradientAccumulated,
    GraphTaskBegun,
    InferenceWithdrawn,
    NodeFinished,
    NodeStarted,
    QueuePop,
    SavedTensorsReleased,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Row = tuple[int | None, ...]
"""``(seq, t, thread, graph_task, kind, node, a, b, c, d, e)``, as in the ``event`` table."""

KIND: Final = emissions.KIND

_HEAD = 4
GRAPH_TASK_COLUMN: Final = 3
KIND_COLUMN: Final = 4
_NODE_COLUMN = 5
OBJECT_COLUMN: Final = 6
NONFINITE_COLUMNS: Final = slice(7, 10)
"""NaN, +Inf and -Inf in the row of a NonFiniteChecked."""
"""Where a row that can't go to the file as it is has an object in place of its other fields."""
_LETTERS: Final = 5
"""Columns ``a`` to ``e``."""
WIDTH: Final = ROW
"""Values of a row on its way to the file."""

COPIED: Final = ENDED + 1
"""Kind of a row with a :class:`~agviz.record.copies.Copy` of the gradient of an emission."""


class RowLayout(NamedTuple):
    """The columns of the fields of one type of event."""

    event_type: type[Event]
    to_fields: Callable[[Sequence[int | None]], tuple[Any, ...]]
    """Takes the fields out of a row; texts are the ids of strings in it."""
    texts: tuple[int, ...]
    """Positions of the fields that are texts, among the fields."""
    truths: tuple[int, ...]
    """Positions of the fields that are truth values, among the fields."""
    is_plain: bool
    """Whether all fields are numbers."""
    to_row: Callable[[Sequence[Any]], tuple[Any, ...]]
    """Takes what is given to SQLite out of the fields, the kind and ABSENT, in this order."""


def _layout(event_type: Any) -> RowLayout:
    fields = event_type._fields
    columns = _columns(fields)
    kinds = [event_type.__annotations__.get(field, "int") for field in fields]
    texts = tuple(i for i, text in enumerate(kinds) if _is(text, "str"))
    truths = tuple(i for i, text in enumerate(kinds) if _is(text, "bool"))
    kept = range(_HEAD) if event_type is GraphTaskBegun else range(len(fields))
    places = {columns[position]: position for position in kept} | {KIND_COLUMN: len(fields)}
    return RowLayout(
        event_type=event_type,
        to_fields=itemgetter(*columns),
        texts=texts,
        truths=truths,
        is_plain=all(_is(kind, "int") for kind in kinds),
        to_row=itemgetter(*(places.get(column, len(fields) + 1) for column in range(WIDTH))),
    )


def _columns(fields: Sequence[str]) -> list[int]:
    """The column of each field."""
    extra = itertools.count(_NODE_COLUMN + 1)
    return [
        *range(_HEAD),
        *(_NODE_COLUMN if field == "node" else next(extra) for field in fields[_HEAD:]),
    ]


def _is(annotation: Any, name: str) -> bool:
    return str(getattr(annotation, "__forward_arg__", annotation)) == name


LAYOUTS: Final = tuple(map(_layout, EVENT_TYPES))
"""By kind."""


@functools.cache
def insertion(count: int) -> str:
    """SQL that inserts ``count`` rows of :data:`WIDTH` columns, by their ``seq``.

    Where each row comes behind the one before, pages are filled to the end. The first parameter is
    the time from which that of events is counted.
    """
    values = ",".join([f"({','.join('?' * WIDTH)})"] * count)
    columns = range(_NODE_COLUMN, _NODE_COLUMN + 1 + _LETTERS)
    facts = ",".join(f"nullif(column{1 + column}, {ABSENT})" for column in columns)
    return (
        f"INSERT INTO event SELECT column1, column2 - ?, column3, column4, column5, {facts}"  # noqa: S608 - numbers and question marks
        f" FROM (VALUES {values}) ORDER BY 1"
    )


BEGUN: Final = KIND[GraphTaskBegun]

ODD: Final = frozenset({COPIED} | {KIND[event] for event in EVENT_TYPES if event not in JOURNALED})
"""Kinds of rows with an object."""


ROWS_OF: Final = {
    **{kind: (kind,) for kind in KIND.values()},
    KIND[QueuePop]: (KIND[QueuePop], TOOK),
    KIND[NodeStarted]: (TOOK,),
    KIND[DependencyDecremented]: (DELIVERED,),
    KIND[GradientAccumulated]: (KIND[GradientAccumulated], DELIVERED),
    KIND[SavedTensorsReleased]: (KIND[SavedTensorsReleased], ENDED),
    KIND[NodeFinished]: (ENDED,),
}
"""Kinds of the rows that may be, or hold, an event of each kind."""
SECOND: Final = frozenset({KIND[NodeStarted], KIND[GradientAccumulated], KIND[NodeFinished]})
"""Kinds of the events that are the second of a step."""


def _nodes(fields: Sequence[str]) -> tuple[int, ...]:
    columns = zip(fields, _columns(fields), strict=True)
    return tuple(column for field, column in columns if field in {"node", "producer"})


NODES: Final = {
    **{kind: _nodes(event._fields) for event, kind in KIND.items()},
    KIND[InferenceWithdrawn]: (),  # it concerns all of the graph task
    TOOK: (_NODE_COLUMN,),
    DELIVERED: (_NODE_COLUMN, _NODE_COLUMN + 1),
    ENDED: (_NODE_COLUMN,),
    COPIED: (_NODE_COLUMN,),
}
"""Columns of the nodes that a row concerns, by its kind."""


def each(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The rows one by one."""
    return (rows[begin : begin + WIDTH] for begin in range(0, len(rows), WIDTH))


def row_of(event: Event) -> tuple[Any, ...]:
    """The row as which an event waits that journals do not get."""
    return with_object(KIND[type(event)], event, event)


def with_object(kind: int, event: Event, thing: object) -> tuple[Any, ...]:
    """A row for an event that has an object in place of its other fields."""
    node = getattr(event, "node", ABSENT)
    return (*event[:_HEAD], kind, node, thing, ABSENT, ABSENT, ABSENT, ABSENT)


def with_copy(row: tuple[Any, ...], copy: object) -> tuple[Any, ...]:
    """The row with ``copy`` as its object."""
    return (*row[:OBJECT_COLUMN], copy, *row[OBJECT_COLUMN + 1 :])


def encode(event: Event, intern: Callable[[str], int]) -> tuple[int, ...]:
    """What is given to SQLite for an event, with ``t`` still on the clock of the events.

    Args:
        event: of any type.
        intern: gives the ``string`` id of a text.
    """
    kind = KIND[type(event)]
    layout = LAYOUTS[kind]
    fields: list[Any] = list(event)
    for position in layout.texts:
        fields[position] = intern(fields[position])
    return layout.to_row((*fields, kind, ABSENT))


def decode(
    row: Sequence[int | None],
    start_ns: int,
    name: Callable[[int], str],
    message: Callable[[int], str],
) -> tuple[Event, ...]:
    """The events that ``row`` expands to; not for GraphTaskBegun.

    Args:
        row: as in the ``event`` table, ``t`` counted from ``start_ns``; what is behind its columns
            is not looked at.
        start_ns: the recording's zero.
        name: gives the text of a ``string`` id.
        message: the same for the text of an exception.

    Raises:
        ValueError: the row is none of ours.
    """
    kind = row[4]
    if kind is None or not 0 <= kind <= ENDED:
        raise ValueError(f"there is no event of kind {kind}")
    filled = _FIELDS.get(kind)
    if filled is not None:
        if None in row[:filled]:
            raise ValueError(f"event {row[0]} lacks a field")
        return EXPANSION[kind](row, start_ns)
    layout = LAYOUTS[kind]
    fields = layout.to_fields(row)
    if None in fields:
        raise ValueError(f"event {row[0]} lacks a field")
    if layout.is_plain:
        return (layout.event_type._make((fields[0], fields[1] + start_ns, *fields[2:])),)
    values = list(fields)
    values[1] += start_ns
    for position in layout.texts:
        is_message = layout.event_type._fields[position] == "message"
        values[position] = (message if is_message else name)(values[position])
    for position in layout.truths:
        values[position] = bool(values[position])
    return (layout.event_type._make(values),)


_STEPS: Final = {TOOK: 8, DELIVERED: 11, ENDED: 8}
_FIELDS: Final = _STEPS | {
    kind: _NODE_COLUMN + len(LAYOUTS[kind].event_type._fields) - _HEAD
    for kind in EXPANSION
    if kind not in _STEPS
}
"""Columns that must be filled in rows that expand as those of a journal do."""
