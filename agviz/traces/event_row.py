"""Events as rows of one table: every kind in the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.traces.inferred import is_inferred

if TYPE_CHECKING:
    from agviz.traces.rows import Meta
    from agviz_engine.events import Event


class EventRow(NamedTuple):
    """One event of any kind; None where its kind has no such field.

    The fields are those of the kinds in :mod:`agviz_engine.events`, which says what they mean.
    """

    seq: int
    time_ns: int
    thread: int
    graph_task: int
    event: str
    """The kind: ``NodeStarted``, ``QueuePush``, …"""
    node: int | None = None
    parent: int | None = None
    parent_node: int | None = None
    reentrant_depth: int | None = None
    keep_graph: bool | None = None
    create_graph: bool | None = None
    accumulate_grad: bool | None = None
    roots: int | None = None
    inputs: int | None = None
    traced: bool | None = None
    nodes: int | None = None
    edges: int | None = None
    queue: int | None = None
    size: int | None = None
    outputs: int | None = None
    error: str | None = None
    message: str | None = None
    reason: str | None = None
    kind: str | None = None
    name: str | None = None
    duration_ns: int | None = None
    changed: bool | None = None
    producer: int | None = None
    remaining: int | None = None
    slot: int | None = None
    added: bool | None = None
    nbytes: int | None = None
    output_index: int | None = None
    output: int | None = None
    nan: int | None = None
    posinf: int | None = None
    neginf: int | None = None
    callback: int | None = None
    executed: int | None = None
    native_id: int | None = None
    expected: int | None = None
    inferred: bool = False
    """Whether it was inferred, not seen: see :mod:`agviz.traces.inferred`."""

    @classmethod
    def of(cls, event: Event, meta: Meta) -> EventRow:
        """The row of an event of a recording."""
        inferred = is_inferred(meta, event)
        return cls(event=type(event).__name__, **event._asdict(), inferred=inferred)

    def __repr__(self) -> str:
        fields = [
            f"{name}={value!r}"
            for name, value in self._asdict().items()
            if value is not None and name != "event" and (name != "inferred" or value)
        ]
        return f"{self.event}({', '.join(fields)})"
