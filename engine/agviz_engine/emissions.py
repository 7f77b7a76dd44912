"""Emissions: what one turn of the engine's loop does under one lock, as one row of integers.

The engine emits a row once; :data:`EXPANSION` says which events it expands to. Most rows are one
event. Three steps of the loop are two events each, which always happen together:

============= ========================================== =======================================
emission      columns ``node``, ``a`` to ``e``           events
============= ========================================== =======================================
``TOOK``      node, queue, size                          QueuePop unless size is -1: not known;
                                                         NodeStarted
``DELIVERED`` consumer, producer, remaining, slot,       DependencyDecremented;
              added, nbytes                              GradientAccumulated unless nbytes is -1:
                                                         the gradient is undefined
``ENDED``     node, outputs, released                    SavedTensorsReleased if released;
                                                         NodeFinished
============= ========================================== =======================================

A row has one sequence number, and the next one is its own as well: the second event of a step has
it, whether the first event happened or not. So ``seq + 1`` is when a node started or ended, or a
gradient arrived.
This module imports neither torch nor anything of the engine but its events.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, Final

from agviz_engine.events import (
    EVENT_TYPES,
    DependencyDecremented,
    Event,
    GradientAccumulated,
    LeafAccumulated,
    NodeFinished,
    NodeStarted,
    NonFiniteChecked,
    QueuePop,
    QueuePush,
    SavedTensorsReleased,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROW: Final = 11
"""Values in a row: ``seq``, ``time_ns``, ``thread``, ``graph_task``, kind, ``node``, ``a`` to
``e``."""
ABSENT: Final = -(2**63)
"""Fills a row; a number, because Python gives SQLite a None ten times as slowly as a number."""

KIND: Final[dict[type[Event], int]] = {kind: number for number, kind in enumerate(EVENT_TYPES)}
"""Kind of an emission that is one event."""
TOOK: Final = len(EVENT_TYPES)
DELIVERED: Final = TOOK + 1
ENDED: Final = TOOK + 2

PUSH: Final = KIND[QueuePush]
POP: Final = KIND[QueuePop]
ARRIVED: Final = KIND[GradientAccumulated]
LEAF: Final = KIND[LeafAccumulated]
CHECKED: Final = KIND[NonFiniteChecked]
RELEASED: Final = KIND[SavedTensorsReleased]

JOURNALED: Final = frozenset(
    {
        *(QueuePush, QueuePop, NodeStarted, NodeFinished, DependencyDecremented),
        *(GradientAccumulated, LeafAccumulated, NonFiniteChecked, SavedTensorsReleased),
    }
)
"""Events that come with nearly every node: an instrument with a journal gets their rows."""

clock = time.monotonic_ns
next_seq: Callable[[], int] = itertools.count(0, 2).__next__
"""Numbers in steps of two: the one between belongs to who draws, whatever other threads do."""


def took(thread: int, graph_task: int, node: int, queue: int, size: int) -> tuple[int, ...]:
    """The row of a task that leaves its queue now; ``size``: that of the queue then, -1: unknown.

    A queue that is popped for every node builds the row itself.
    """
    place = next_seq(), clock(), thread, graph_task
    return *place, TOOK, node, queue, size, ABSENT, ABSENT, ABSENT


_new: Final = tuple.__new__
"""Makes an event at half the price of its class, which has Python code put the fields together."""


def _took(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, queue, size, *_ = row
    time_ns += zero
    started = _new(NodeStarted, (seq + 1, time_ns, thread, graph_task, node))
    if size < 0:
        return (started,)
    return _new(QueuePop, (seq, time_ns, thread, graph_task, queue, node, size)), started


def _delivered(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, producer, remaining, slot, added, nbytes, *_ = row
    time_ns += zero
    decremented = _new(
        DependencyDecremented, (seq, time_ns, thread, graph_task, node, producer, remaining)
    )
    if nbytes < 0:
        return (decremented,)
    fields = seq + 1, time_ns, thread, graph_task, node, producer, slot, bool(added), nbytes
    return decremented, _new(GradientAccumulated, fields)


def _ended(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, outputs, released, *_ = row
    time_ns += zero
    finished = _new(NodeFinished, (seq + 1, time_ns, thread, graph_task, node, outputs))
    if not released:
        return (finished,)
    return _new(SavedTensorsReleased, (seq, time_ns, thread, graph_task, node)), finished


def _pushed(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, queue, size, *_ = row
    return (_new(QueuePush, (seq, time_ns + zero, thread, graph_task, queue, node, size)),)


def _popped(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, queue, size, *_ = row
    return (_new(QueuePop, (seq, time_ns + zero, thread, graph_task, queue, node, size)),)


def _arrived(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, producer, slot, added, nbytes, *_ = row
    place = seq, time_ns + zero, thread, graph_task
    return (_new(GradientAccumulated, (*place, node, producer, slot, bool(added), nbytes)),)


def _leaf(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, *_ = row
    return (_new(LeafAccumulated, (seq, time_ns + zero, thread, graph_task, node)),)


def _checked(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, output, nan, posinf, neginf, *_ = row
    place = seq, time_ns + zero, thread, graph_task
    return (_new(NonFiniteChecked, (*place, node, output, nan, posinf, neginf)),)


def _released(row: Sequence[Any], zero: int) -> tuple[Event, ...]:
    seq, time_ns, thread, graph_task, _, node, *_ = row
    return (_new(SavedTensorsReleased, (seq, time_ns + zero, thread, graph_task, node)),)


EXPANSION: Final[dict[int, Callable[[Sequence[Any], int], tuple[Event, ...]]]] = {
    TOOK: _took,
    DELIVERED: _delivered,
    ENDED: _ended,
    PUSH: _pushed,
    POP: _popped,
    ARRIVED: _arrived,
    LEAF: _leaf,
    CHECKED: _checked,
    RELEASED: _released,
}
"""The events of a row of each kind that goes to journals, in order of ``seq``; the second argument
is the time from which that of the row is counted."""


def expand(row: Sequence[Any]) -> tuple[Event, ...]:
    """The events that a row of a journal expands to."""
    return EXPANSION[row[4]](row, 0)
