"""What breakpoints ask of a node while it is alive."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from agviz.traces.rows import visible

if TYPE_CHECKING:
    from agviz.record.names import Names
    from agviz.record.provenance import Provenance
    from agviz.traces.rows import Frame
    from agviz_engine.node import NodeRef


class DebuggedRecording(Protocol):
    """The recording of the debugged process."""

    @property
    def names(self) -> Names:
        """Of parameters and modules."""

    @property
    def provenance(self) -> Provenance | None:
        """Where nodes come from; None where that is not recorded."""

    def records(self, graph_task: int) -> bool:
        """Whether the events of a graph task that has begun are in the file."""

    def flush(self) -> None:
        """Wait until what has happened can be read from the file."""

    def hold(self, thread: int, graph_task: int, node: int, reason: str) -> None:
        """A thread is stopped from now on, behind an event: that is no hang."""

    def let_go(self, thread: int) -> None:
        """It runs on."""


class LiveNode:
    """A live node, as a :class:`~agviz.debugger.breakpoints.NodeProperties`."""

    def __init__(self, ref: NodeRef, subject: DebuggedRecording) -> None:
        self._ref = ref
        self._subject = subject

    @property
    def node(self) -> int:
        """Index in its graph task."""
        return self._ref.index

    @cached_property
    def name(self) -> str:
        """Torch's name."""
        return self._ref.name

    @property
    def sequence_nr(self) -> int | None:
        """None: it is an AccumulateGrad."""
        return None if self._ref.is_accumulate_grad else self._ref.sequence_nr

    @property
    def device(self) -> int:
        """Index of its queue."""
        return self._ref.device

    @cached_property
    def parameter(self) -> str:
        """Name of the parameter that it accumulates into; empty: none."""
        if not self._ref.is_accumulate_grad:
            return ""
        variable = getattr(self._ref.node, "variable", None)
        return "" if variable is None else self._subject.names.parameter(variable) or ""

    @cached_property
    def module(self) -> str:
        """Path of the module whose forward made it, or that has the parameter; empty: none."""
        if self._ref.is_accumulate_grad:
            return self.parameter.rpartition(".")[0]
        if self._ref.is_graph_root:
            return ""
        return self._subject.names.module(self._ref.sequence_nr) or ""

    @cached_property
    def stack(self) -> tuple[Frame, ...]:
        """Where the forward made it, outermost frame first."""
        provenance = self._subject.provenance
        if provenance is None:
            return ()
        (stack,) = provenance.resolve([provenance.captured(self._ref.node)])
        return stack

    @property
    def line(self) -> Frame | None:
        """The innermost frame that is the program's own."""
        return visible(self.stack)
