"""Questions that the screen of a flow asks of the reader thread, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.flow import FlowReading, ParameterHistory
from agviz_engine.events import NodeStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.analysis.flow import FlowTarget, FollowedGradient
    from agviz.analysis.flow_steps import FlowStep
    from agviz.traces.reader import Trace
    from agviz.tui.model import LoadedPass

_PIECE_S: Final = 0.02
"""One reads for so long at once: a key may wait behind it."""


class FlowRead(NamedTuple):
    """A step of the reading."""

    reading: FlowReading
    flow: FollowedGradient | None
    """None: not all of it is known."""
    share: float
    """How much was read."""


class HistoryRead(NamedTuple):
    """What is known by now of the gradient of a parameter over the passes of a run."""

    history: ParameterHistory
    graph_tasks: Sequence[int]
    """The passes."""
    norms: Sequence[float | None]
    """By pass; NaN: not finite; None: none, or not known."""
    place: int | None
    """Of the pass that was asked for."""
    is_read: bool


def read_flow(
    target: FlowTarget, before: FlowReading | None, other_way: int | None = None
) -> Callable[[Trace, LoadedPass], FlowRead]:
    """Read on.

    Args:
        target: where the flow leads.
        before: what was read of it, or of another one; None: nothing.
        other_way: a step of it into which another gradient is to be followed.
    """

    def question(trace: Trace, _recording: LoadedPass) -> FlowRead:
        reading = before
        if reading is None or reading.target != target:
            reading = FlowReading(trace, target, before)
        if other_way is not None:
            reading.choose(other_way)
        is_read = reading.read_on(trace, _PIECE_S)
        return FlowRead(reading, reading.flow() if is_read else None, reading.share)

    return question


def read_history(
    parameter: str, graph_task: int, before: ParameterHistory | None
) -> Callable[[Trace, LoadedPass], HistoryRead]:
    """Read on; None: from the beginning."""

    def question(trace: Trace, _recording: LoadedPass) -> HistoryRead:
        history = ParameterHistory(trace, parameter) if before is None else before
        is_read = history.read_on(_PIECE_S)
        place, norms = history.place(graph_task), history.norms()
        return HistoryRead(history, history.tasks.ids, norms, place, is_read)

    return question


class StepPlace(NamedTuple):
    """Where a node of a flow was taken up."""

    graph_task: int
    node: int
    seq: int | None
    """Of its NodeStarted; None: that is not known."""


def place_of(step: FlowStep) -> Callable[[Trace, LoadedPass], StepPlace]:
    """Where one sees a node of a flow in its pass."""

    def question(trace: Trace, _recording: LoadedPass) -> StepPlace:
        seqs = trace.seqs_where(step.graph_task, [NodeStarted], node=step.node)
        return StepPlace(step.graph_task, step.node, seqs[0] if seqs else None)

    return question
