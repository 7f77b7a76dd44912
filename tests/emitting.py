"""Emit events that a test made up, as the engine does: rows to journals, events to observers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agviz_engine import events
from agviz_engine.emissions import ABSENT, DELIVERED, ENDED, JOURNALED, KIND, ROW, TOOK
from agviz_engine.instruments import Live, Registry, method_name

if TYPE_CHECKING:
    from collections.abc import Sequence


def emit(registry: Registry, several: Sequence[events.Event], live: Live) -> None:
    """Emit events; those that the engine emits as one step have to follow each other."""
    rest = list(several)
    while rest:
        row, count = _row(rest)
        if row is not None and registry.journal is not None:
            registry.journal(row)
        for event in rest[:count]:
            observers = getattr(registry, method_name(type(event)))
            registry.dispatch(observers, event, live)
        del rest[:count]


def _row(  # noqa: PLR0911 - one for each kind of step
    rest: Sequence[Any],
) -> tuple[tuple[Any, ...] | None, int]:
    """The row of the first events, if they have one, and how many they are."""
    first, second = rest[0], rest[1] if len(rest) > 1 else None
    match first, second:
        case events.QueuePop(), events.NodeStarted():
            return _filled(first, TOOK, first.node, first.queue, first.size), 2
        case events.DependencyDecremented(), events.GradientAccumulated(producer=producer) if (
            producer >= 0
        ):
            fact = first.producer, first.remaining, second.slot, int(second.added), second.nbytes
            return _filled(first, DELIVERED, first.node, *fact), 2
        case events.DependencyDecremented(), _:
            fact = first.producer, first.remaining, 0, 0, -1
            return _filled(first, DELIVERED, first.node, *fact), 1
        case events.SavedTensorsReleased(), events.NodeFinished():
            return _filled(first, ENDED, first.node, second.outputs, 1), 2
        case events.NodeFinished(), _:  # the second event of its step
            begun = first._replace(seq=first.seq - 1)
            return _filled(begun, ENDED, first.node, first.outputs, 0), 1
    if type(first) not in JOURNALED:
        return None, 1
    others = [
        int(value)
        for field, value in zip(first._fields[4:], first[4:], strict=True)
        if field != "node"
    ]
    return _filled(first, KIND[type(first)], first.node, *others), 1


def _filled(event: events.Event, kind: int, *fields: int) -> tuple[Any, ...]:
    row = *event[:4], kind, *fields
    return *row, *(ABSENT,) * (ROW - len(row))
