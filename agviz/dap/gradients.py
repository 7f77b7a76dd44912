"""What was measured of the gradients that a node receives."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.measure.values import Health

if TYPE_CHECKING:
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace

_RECEIVED: Final = {"root", "sum", "captured", "replaced"}
_MOST_SLOTS: Final = 200


class GradientIn(NamedTuple):
    """A gradient that came into a slot."""

    health: Health
    role: str
    """As in :class:`agviz.traces.health.HealthRow`; ``output``: measured where it was put out."""
    producer: int
    """The node that put it out, where it is the only one; else -1."""


def measured(row: HealthRow) -> Health:
    """What was measured, without where that was."""
    return Health._make(getattr(row, field) for field in Health._fields)


def received(trace: Trace, graph_task: int, node: int, seq: int) -> dict[int, GradientIn]:
    """What came into the slots of a node up to an event, as far as it was measured."""
    found = {
        row.slot: GradientIn(measured(row), row.role, -1)
        for row in trace.health(graph_task, node)
        if row.role in _RECEIVED and row.seq <= seq
    }
    edges = trace.edges_into(graph_task, node)
    feeding = Counter(edge.slot for edge in edges)
    for edge in edges:
        if feeding[edge.slot] > 1 or edge.slot in found:
            continue  # what several came to was measured itself
        if len(found) >= _MOST_SLOTS:
            break
        for row in trace.health(graph_task, edge.producer, edge.output):
            if row.role == "output" and row.seq <= seq:
                found[edge.slot] = GradientIn(measured(row), row.role, edge.producer)
    return found
