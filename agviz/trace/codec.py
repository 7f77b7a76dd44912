"""Events to rows of the ``event`` table and back: which field stands in which column.

Every event starts with ``seq``, ``time_ns``, ``thread`` and ``graph_task``, which have columns of
their own; so have the kind and ``node``. The other fields of a kind fill the columns ``a`` to
``d`` in their order. GraphTaskBegun has more fields than that: they are facts about its graph task
and stand in that table.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz_engine.events import EVENT_TYPES, Event, GraphTaskBegun

if TYPE_CHECKING:
    from collections.abc import Callable

Row = tuple[int | None, ...]
"""``(seq, t, thread, graph_task, kind, node, a, b, c, d)``, as in the ``event`` table."""

Noted = tuple[Any, ...]
"""An event on its way to the file: its fields, None and its kind, in a plain tuple."""

KIND: Final[dict[type[Event], int]] = {kind: number for number, kind in enumerate(EVENT_TYPES)}
"""Number of each type of event in trace files."""

SUFFIX: Final[dict[type[Event], tuple[None, int]]] = {kind: (None, n) for kind, n in KIND.items()}
"""``event + SUFFIX[type(event)]`` is the event as :data:`Noted`.

The garbage collector forgets a plain tuple of numbers and texts when it first meets it, but would
visit a named tuple for as long as it lives: with many events in memory that costs far more than
noting them.
"""

_HEAD = 4
_EXTRA_COLUMNS = 4
_NODE_COLUMN = 5


class Layout(NamedTuple):
    """Where the fields of one type of event stand."""

    event_type: type[Event]
    columns: tuple[int, ...]
    """For every field, the position in a :data:`Row` that holds it."""
    texts: tuple[int, ...]
    """Positions of the fields that are texts, among the fields."""
    truths: tuple[int, ...]
    """Positions of the fields that are truth values, among the fields."""
    to_row: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    """Takes a :data:`Noted` event."""


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
    from_column = {column: position for position, column in enumerate(columns)}
    kind, none = len(fields) + 1, len(fields)
    row = [from_column.get(column, none) for column in range(_NODE_COLUMN + 1 + _EXTRA_COLUMNS)]
    row[4] = kind
    return Layout(
        event_type,
        tuple(columns),
        tuple(i for i, text in enumerate(kinds) if _is(text, "str")),
        tuple(i for i, text in enumerate(kinds) if _is(text, "bool")),
        itemgetter(*row),
    )


def _is(annotation: Any, name: str) -> bool:
    return str(getattr(annotation, "__forward_arg__", annotation)) == name


def _begun_layout() -> Layout:
    layout = _layout(GraphTaskBegun)
    kind, none = len(GraphTaskBegun._fields) + 1, len(GraphTaskBegun._fields)
    row = (0, 1, 2, 3, kind, *[none] * (1 + _EXTRA_COLUMNS))
    return layout._replace(columns=(0, 1, 2, 3), to_row=itemgetter(*row))


LAYOUTS: Final[tuple[Layout, ...]] = tuple(
    _begun_layout() if event_type is GraphTaskBegun else _layout(event_type)
    for event_type in EVENT_TYPES
)
"""By kind."""

BEGUN: Final = KIND[GraphTaskBegun]


def encode(noted: Noted, intern: Callable[[str], int]) -> Row:
    """The row of an event, with ``t`` still on the clock of the events.

    Args:
        noted: any event.
        intern: gives the ``string`` id of a text.
    """
    layout = LAYOUTS[noted[-1]]
    if layout.texts:
        noted = tuple(intern(value) if isinstance(value, str) else value for value in noted)
    return layout.to_row(noted)


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
    if kind is None or not 0 <= kind < len(LAYOUTS):
        raise ValueError(f"there is no event of kind {kind}")
    layout = LAYOUTS[kind]
    values: list[Any] = [row[column] for column in layout.columns]
    if None in values:
        raise ValueError(f"event {row[0]} lacks a field")
    values[1] += start_ns
    for position in layout.texts:
        is_message = layout.event_type._fields[position] == "message"
        values[position] = (message if is_message else name)(values[position])
    for position in layout.truths:
        values[position] = bool(values[position])
    make: Any = layout.event_type._make
    event: Event = make(values)
    return event
