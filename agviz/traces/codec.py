"""Events to rows of the ``event`` table and back: which field stands in which column.

Every event starts with ``seq``, ``time_ns``, ``thread`` and ``graph_task``, which have columns of
their own; so have the kind and ``node``. The other fields of a kind fill the columns ``a`` to
``d`` in their order. GraphTaskBegun has more fields than that: they are facts about its graph task
and stand in that table.
"""

from __future__ import annotations

import functools
import itertools
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.traces.copies import Copied
from agviz.traces.measured import Measured
from agviz_engine.events import EVENT_TYPES, Event, GraphTaskBegun, NodeStarted, NonFiniteChecked
from agviz_engine.instruments import BURSTS, FINITE, MEASURED, Burst

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
_CHECK: Final = 5
"""Fields of a Measured before those of its Health."""
_LETTERS: Final = 4
"""Columns ``a`` to ``d``."""
WIDTH: Final = 11
"""Columns of what is given to SQLite for an event, or for those of a burst: the kind in the fifth,
the node in the sixth, the other fields behind it, :data:`ABSENT` where there are no more."""
ABSENT: Final = -(2**63)
"""Stands for NULL among what is given to SQLite: Python's binding takes ten times as long over a
None, for which it looks in vain for an adapter."""


class Layout(NamedTuple):
    """Where the fields of one type of event stand."""

    event_type: type[Event]
    """Of a burst: the first."""
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
    """Takes what is given to SQLite out of a waiting event whose None was replaced."""
    nodes: tuple[int, ...]
    """Positions of the nodes that the event concerns, in a waiting event."""


def _layout(event_type: Any, fields: tuple[str, ...] | None = None) -> Layout:
    fields = event_type._fields if fields is None else fields
    columns = _columns(fields)
    kinds = [event_type.__annotations__.get(field, "int") for field in fields]
    texts = tuple(i for i, text in enumerate(kinds) if _is(text, "str"))
    truths = tuple(i for i, text in enumerate(kinds) if _is(text, "bool"))
    waiting = {column: 2 + position for position, column in enumerate(columns)}
    waiting[4] = 0
    return Layout(
        event_type=event_type,
        make=event_type._make,
        to_fields=itemgetter(*columns),
        texts=texts,
        truths=truths,
        is_plain=all(_is(kind, "int") for kind in kinds),
        width=2 + len(fields),
        to_row=itemgetter(*(waiting.get(column, 1) for column in range(WIDTH))),
        nodes=tuple(2 + fields.index(name) for name in ("node", "producer") if name in fields),
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


def _begun_layout() -> Layout:
    to_row = itemgetter(2, 3, 4, 5, 0, 1, 1, 1, 1, 1, 1)
    return _layout(GraphTaskBegun)._replace(to_row=to_row)


LAYOUTS: Final[tuple[Layout, ...]] = (
    *(_begun_layout() if kind is GraphTaskBegun else _layout(kind) for kind in EVENT_TYPES),
    _layout(Measured),
    _layout(Measured, (*Measured._fields[:_CHECK], "output", *Measured._fields[_CHECK:])),
    *(_layout(burst.events[0], burst.fields) for burst in BURSTS.values()),
    _layout(Copied),
)
"""By kind, or what stands in its place."""


def _choice(of: Callable[[Burst, type[Event]], object], else_: str) -> str:
    """SQL of a column: ``of`` says what it is in each event of a burst."""
    cases = []
    for number, burst in BURSTS.items():
        *early, last = (str(of(burst, event)) for event in burst.events)
        parts = (f" WHEN {part} THEN {column}" for part, column in enumerate(early))
        cases.append(f" WHEN {number} THEN CASE part{''.join(parts)} ELSE {last} END")
    return f"CASE column5{''.join(cases)} ELSE {else_} END"


def _letter(letter: int) -> str:
    def of(burst: Burst, event: type[Event]) -> object:
        fields = [field for field in event._fields[_HEAD:] if field != "node"]
        if letter >= len(fields):
            return ABSENT
        source = burst.source(event, fields[letter])
        return f"column{1 + _columns(burst.fields)[burst.fields.index(source)]}"

    return f"nullif({_choice(of, f'column{7 + letter}')}, {ABSENT})"


@functools.cache
def insertion(count: int) -> str:
    """SQL that inserts the events of ``count`` rows of :data:`WIDTH` columns, in their order.

    Its first parameter is the time from which that of events is counted.
    """
    values = ",".join([f"({','.join('?' * WIDTH)})"] * count)
    kind = _choice(lambda _, event: KIND[event], "column5")
    sizes = (f" WHEN {number} THEN {len(burst.events)}" for number, burst in BURSTS.items())
    most = range(max(len(burst.events) for burst in BURSTS.values()))
    parts = " UNION ALL ".join(f"SELECT {part} AS part" for part in most)
    return (
        f"INSERT INTO event SELECT column1 + part, column2 - ?, column3, column4, {kind},"  # noqa: S608 - numbers and question marks
        f" nullif(column6, {ABSENT}), {', '.join(map(_letter, range(_LETTERS)))}"
        f" FROM (VALUES {values}) CROSS JOIN ({parts})"
        f" WHERE part < CASE column5{''.join(sizes)} ELSE 1 END"
    )


COPIED: Final = len(LAYOUTS) - 1
"""Stands in place of a kind before a :class:`~agviz.traces.copies.Copied`, as ``MEASURED`` does
before a :data:`~agviz.traces.measured.Measured`."""

_GRAPH_TASK: Final = 2 + NodeStarted._fields.index("graph_task")
_COPY: Final = 2 + Copied._fields.index("copy")

BEGUN: Final = KIND[GraphTaskBegun]
CHECKED: Final = KIND[NonFiniteChecked]


def health(waiting: Sequence[Any]) -> Any | None:
    """What was measured, as a :data:`~agviz.traces.measured.Measured`; None: it is none."""
    if waiting[0] == MEASURED:
        return Measured._make(waiting[2:])
    if waiting[0] == FINITE:
        return Measured._make((*waiting[2 : 2 + _CHECK], *waiting[3 + _CHECK :]))
    return None


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


def encode(waiting: list[Any], intern: Callable[[str], int]) -> tuple[int, ...]:
    """What is given to SQLite for an event or a burst, with ``t`` still on the clock of the events.

    Args:
        waiting: kind, None and the fields; it is changed.
        intern: gives the ``string`` id of a text.
    """
    layout = LAYOUTS[waiting[0]]
    for position in layout.texts:
        waiting[2 + position] = intern(waiting[2 + position])
    waiting[1] = ABSENT
    row: tuple[int, ...] = layout.to_row(waiting)
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
