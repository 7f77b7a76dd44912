"""Reading what was measured of gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agviz.measure.values import Health
from agviz.traces import codec
from agviz.traces.events import beside
from agviz.traces.schema import ARRIVED, AT, DELIVERED
from agviz.words.shapes import read_shape
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database

_HOOK: Final = codec.KIND[events.HookCalled]
_INTERVENED: Final = codec.KIND[events.Intervened]
ROLES: Final = ("output", "root", "sum", "accumulated", "captured", "hook", "replaced")
ROLE: Final = (
    f"CASE event.kind WHEN {codec.KIND[events.NonFiniteChecked]} THEN 0"
    f" WHEN {ARRIVED} THEN iif(event.a < 0, 1, 2) WHEN {DELIVERED} THEN 2"
    f" WHEN {codec.KIND[events.LeafAccumulated]} THEN 3"
    f" WHEN {codec.KIND[events.GradientCaptured]} THEN 4 WHEN {_HOOK} THEN 5"
    f" WHEN {_INTERVENED} THEN 6 ELSE 7 END"
)
"""Number among ``ROLES``, in SQL; nothing is measured in any other event."""
SLOT: Final = (
    f"CASE event.kind WHEN {ARRIVED} THEN event.b WHEN {DELIVERED} THEN event.c"
    f" WHEN {_INTERVENED} THEN event.b"
    f" WHEN {codec.KIND[events.LeafAccumulated]} THEN 0 WHEN {_HOOK} THEN 0 ELSE event.a END"
)
"""The slot, in SQL."""
_MEASURED: Final = (
    "dtype, shape, device, layout, numel, bytes, numbers, nan, posinf, neginf, zero, min, max,"
    " mean, norm, unknown"
)
_TYPE: Final = "LEFT JOIN tensor_type ON tensor_type.id = tensor_type"
"""Where there is none, what is missing is found out when the row is made."""
_COLUMNS: Final = f"{AT}, event.graph_task, event.node, {ROLE}, {SLOT}, {_MEASURED}"


class HealthRow(NamedTuple):
    """What was measured of one gradient; a list of them is what ``pandas.DataFrame`` takes.

    A complex element counts as two numbers; of a sparse tensor the stored values count.
    """

    graph_task: int
    node: int
    role: str
    """``output``: what the node put out; ``root``: the caller's gradient of a single root, which
    the node received; ``sum``: what several gradients that the node received came to;
    ``accumulated``: the contents of the ``.grad`` of the node's variable afterwards; ``captured``:
    what ``grad`` took from the node's inputs; these two are there only where they may differ from
    what one node put out. ``hook``: something non-finite that a hook gave in place of finite
    gradients. ``replaced``: what an instrument had the node given instead of what came."""
    slot: int
    """Number among the node's outputs; for ``root``, ``sum``, ``captured`` and ``replaced`` among
    its inputs; 0 for ``accumulated`` and ``hook``."""
    seq: int
    """``seq`` of the event in which it flowed."""
    dtype: str
    shape: tuple[int, ...] | None
    """None: not known."""
    device: str
    layout: str
    numel: int
    nbytes: int
    """Bytes in memory; 0: not known."""
    numbers: int
    """How many real numbers were looked at."""
    nan: int
    posinf: int
    neginf: int
    zero: int
    min: float | None
    """Least of the finite numbers, as ``max``, ``mean`` and ``norm`` are of them; None: no such."""
    max: float | None
    mean: float | None
    norm: float | None
    """Euclidean norm; inf where no float is large enough for it."""
    unknown: str
    """Why nothing but its shape is known; empty where it was measured."""


def read(
    database: Database, contents: Contents, condition: str, *parameters: int
) -> list[HealthRow]:
    """The rows of the events that fulfil an SQL condition.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.reals(
        f"SELECT {_COLUMNS} FROM {beside('health')} {_TYPE} WHERE {condition}",  # noqa: S608 - the caller's own words
        *parameters,
    )
    try:
        return [_row(contents, row) for row in rows]
    except (IndexError, TypeError, ValueError, RecursionError) as error:
        raise database.damaged("a gradient's health makes no sense") from error


def read_measured(
    database: Database, contents: Contents, ids: str, *parameters: int
) -> dict[int, Health]:
    """What was measured of tensors that are no gradients, by ``id`` in the table ``measured``.

    ``ids`` is an SQL query of those that are wanted.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.reals(
        f"SELECT measured.id, {_MEASURED} FROM measured {_TYPE} WHERE measured.id IN ({ids})",  # noqa: S608 - the caller's own words
        *parameters,
    )
    try:
        return {cast("int", number): _facts(contents, facts) for number, *facts in rows}
    except (IndexError, TypeError, ValueError, RecursionError) as error:
        raise database.damaged("a tensor's health makes no sense") from error


def _row(contents: Contents, row: tuple[Any, ...]) -> HealthRow:
    seq, graph_task, node, role, slot, *facts = row
    for number in (node, slot):
        if type(number) is not int or number < 0:
            raise ValueError(number)
    place = graph_task, node, ROLES[role], slot, seq
    return HealthRow._make((*place, *_facts(contents, facts)))


def _facts(contents: Contents, facts: Sequence[Any]) -> Health:
    dtype, shape, device, layout, *numbers, unknown = facts
    counts, reals = numbers[:7], numbers[7:]
    for number in counts:
        if type(number) is not int or number < 0:
            raise ValueError(number)
    if sum(counts[3:]) > counts[2]:
        raise ValueError("more numbers are special than there are")
    known = [real for real in reals if real is not None]
    if len(known) not in (0, 4) or any(type(real) is not float for real in known):
        raise ValueError("numbers are missing")
    if known:
        least, most, mean, norm = known
        if not (all(map(math.isfinite, (least, most, mean))) and least <= most and norm >= 0):
            raise ValueError("numbers contradict each other")
    text = contents.name
    facts = text(dtype), read_shape(text(shape)), text(device), text(layout)
    return Health._make((*facts, *counts, *reals, text(unknown)))
