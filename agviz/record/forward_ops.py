"""Torch functions that the program called, on their way to the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.measure.values import Health
    from agviz.traces.elements import LocatedElements
    from agviz.traces.rows import Frame


class ForwardTensor(NamedTuple):
    """A tensor of a call, as :class:`agviz.traces.rows.ForwardTensorRow` describes it."""

    place: str
    tensor: int
    memory: int
    version: int | None
    parameter: str
    shape: str
    dtype: str
    requires_grad: bool
    is_leaf: bool
    health: Health | None


class ForwardOp(NamedTuple):
    """A call, as :class:`agviz.traces.rows.ForwardOpRow` describes it."""

    id: int
    time_ns: int
    thread: int
    name: str
    arguments: str
    module: str
    captured: Any
    """Its stack as it was captured."""
    grad_enabled: bool
    recomputed_in: int
    sequence_nr: int | None
    first_nr: int
    end_nr: int
    error: str
    inputs: list[ForwardTensor]
    outputs: list[ForwardTensor]
    located: Sequence[LocatedElements]
    """Where a tensor of it is not finite that was not made by another call."""


class ForwardOps(NamedTuple):
    """Calls on their way to the file."""

    graph_task: int
    """Before which, or in which, they were made; -1: not known yet."""
    until: int
    """``id`` of the first that is later than the begin of the graph task."""
    ops: list[ForwardOp]
    resolve: Callable[[Sequence[Any]], list[tuple[Frame, ...]]]
    """Gives the stacks, outermost frame first, of what was captured."""
