"""Events to rows of the ``event`` table and back: which field stands in which column.

Every event starts with ``seq``, ``time_ns``, ``thread`` and ``graph_task``, which have columns of
their own; so have the kind and ``node``. The other fields of a kind fill the columns ``a`` to
``d`` in their order. GraphTaskBegun has more fields than that: they are facts about its graph task
and stand in that table.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.traces.copies import Copied
from agviz.traces.measured import Measured
from agviz_engine.events import EVENT_TYPES, Event, GraphTaskBegun, NodeStarted
from agviz_engine.instruments import MEASURED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Row = tuple[int | None, ...]
"""``(seq, t, thread, graph_task, kind, node, a, b, c, d)``, as in the ``event`` table."""

KIND: Final[dict[type[Event], int]] = {kind: number for number, kind in enumerate(EVENT_TYPES)}
"""Number of each type of event in trace files."""

PREFIX: Final[dict[type[Event], tuple[int, None]]] = {kind: (n, None) for kind, n in KIND.items()}
"""``PREFIX[type(event)] + event`` is the event as it waits for the writer.

Note [A flat list of what waits]
Events wait as numbers and texts that follow each other in one long list: kind, None, fields. Kept
one by one they would be objects that the garbage collector visits again and again, and with a
large graph that costs several times what noting them does.
"""

_HEAD = 4
_NODE_COLUMN = 5


class Layout(NamedTuple):
    """Where the fields of one type of event stand."""

    event_type: type[Event]
    make: Callable[[Iterable[Any]], Event]
    """Makes the event of its fields."""
    to_fields: Callable[[Row], tuple[Any, ...]]
    """Takes the fields out of a row; texts are the ids of strings in it."""
    texts: tuple[int, ...]
    """Positions of the fields that are texts, among the fields."""
    truths: tuple[int, ...]
    """Positions of the fields that are truth values, among the fields."""
    is_plain: bool
    """Whether all fields are numbers."""
    width: int
    """Length of a waiting event."""
    to_row: Callable[[list[Any]], tuple[Any, ...]]
    """Takes a waiting event."""
    nodes: tuple[int, ...]
    """Positions of the nodes that the event concerns, in a waiting event."""


def _layout(event_type: type[Event]) -> Layout:
    fields = event_type._fields
    columns = [0, 1, 2, 3]
    extra = _NODE_COLUMN + 1
    for field in fields[_HEAD:]:
        if field == "node":
            columns.append(_NODE_COLUMN)
        else:
            columns.append(extra)
            extra += 1
    kinds = [event_type.__annotations__[field] for field in fields]
    texts = tuple(i for i, text in enumerate(kinds) if _is(text, "str"))
    truths = tuple(i for i, text in enumerate(kinds) if _is(text, "bool"))
    waiting = {column: 2 + position for position, column in enumerate(columns)}
    waiting[4] = 0
    make: Any = event_type._make
    return Layout(
        event_type=event_type,
        make=make,
        to_fields=itemgetter(*columns),
        texts=texts,
        truths=truths,
        is_plain=not texts and not truths,
        width=2 + len(fields),
        to_row=itemgetter(*(waiting.get(column, 1) for column in range(10))),
        nodes=tuple(2 + fields.index(name) for name in ("node", "producer") if name in fields),
    )


def _is(annotation: Any, name: str) -> bool:
    return str(getattr(annotation, "__forward_arg__", annotation)) == name


def _begun_layout() -> Layout:
    to_row = itemgetter(2, 3, 4, 5, 0, 1, 1, 1, 1, 1)
    return _layout(GraphTaskBegun)._replace(to_row=to_row)


LAYOUTS: Final[tuple[Layout, ...]] = tuple(
    _begun_layout() if event_type is GraphTaskBegun else _layout(event_type)
    for event_type in (*EVENT_TYPES, Measured, Copied)
)
"""By kind; the last two are no events, but wait among them."""

COPIED: Final = MEASURED + 1
"""Stands in place of a kind before a :class:`~agviz.traces.copies.Copied`, as ``MEASURED`` does
before a :data:`~agviz.traces.measured.Measured`."""

_GRAPH_TASK: Final = 2 + NodeStarted._fields.index("graph_task")
_COPY: Final = 2 + Copied._fields.index("copy")

BEGUN: Final = KIND[GraphTaskBegun]


def batches(waiting: list[Any], values: int, nbytes: int) -> Iterator[list[Any]]:
    """Cut what waits into lists of about ``values`` values and ``nbytes`` of copies."""
    begin = end = copied = 0
    while end < len(waiting):
        if waiting[end] == COPIED:
            copied += waiting[end + _COPY].nbytes
        end += LAYOUTS[waiting[end]].width
        if end - begin >= values or copied >= nbytes or end == len(waiting):
            yield waiting[begin:end]
            begin, copied = end, 0


def each(waiting: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The waiting events one by one."""
    begin = 0
    while begin < len(waiting):
        end = begin + LAYOUTS[waiting[begin]].width
        yield waiting[begin:end]
        begin = end


def graph_tasks(waiting: list[Any]) -> set[int]:
    """The graph tasks that the waiting events belong to."""
    found = set()
    place = 0
    while place < len(waiting):
        found.add(waiting[place + _GRAPH_TASK])
        place += LAYOUTS[waiting[place]].width
    return found


def encode(waiting: list[Any], intern: Callable[[str], int]) -> Row:
    """The row of an event, with ``t`` still on the clock of the events.

    Args:
        waiting: kind, None and the fields of any event; texts are replaced in it.
        intern: gives the ``string`` id of a text.
    """
    layout = LAYOUTS[waiting[0]]
    for position in layout.texts:
        waiting[2 + position] = intern(waiting[2 + position])
    row: Row = layout.to_row(waiting)
    return row


def decode(
    row: Row, start_ns: int, name: Callable[[int], str], message: Callable[[int], str]
) -> Event:
    """The event that ``row`` was made of; not for GraphTaskBegun.

    Args:
        row: as in the ``event`` table, ``t`` counted from ``start_ns``.
        start_ns: the recording's zero.
        name: gives the text of a ``string`` id.
        message: the same for the text of an exception.

    Raises:
        ValueError: the row is none of ours.
    """
    kind = row[4]
    if kind is None or not 0 <= kind < len(EVENT_TYPES):
        raise ValueError(f"there is no event of kind {kind}")
    layout = LAYOUTS[kind]
    fields = layout.to_fields(row)
    if None in fields:
        raise ValueError(f"event {row[0]} lacks a field")
    if layout.is_plain:
        return layout.make((fields[0], fields[1] + start_ns, *fields[2:]))
    values = list(fields)
    values[1] += start_ns
    for position in layout.texts:
        is_message = layout.event_type._fields[position] == "message"
        values[position] = (message if is_message else name)(values[position])
    for position in layout.truths:
        values[position] = bool(values[position])
    return layout.make(values)
