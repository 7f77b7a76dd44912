"""Loss scales, and the steps that are skipped until one fits.

Note [Skipped steps]
A ``torch.amp.GradScaler`` begins with a scale of 65,536. Where that makes a gradient overflow, it
skips the optimizer's step and halves the scale, until gradients are finite. So the first passes of
a healthy training may hold infinities. A trace shows that where the loss was multiplied last by a
scale, no optimizer stepped before a later pass had a smaller one, and a pass from there on was
finite and was followed by a step. Whatever of this is missing, nothing is called harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.measures import bad, magnitude
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from collections.abc import Container

    from agviz.traces.reader import Trace

_SCALED_BY: Final = "MulBackward0"


class Skipped(NamedTuple):
    """A backward pass whose gradients overflowed, and whose step was left out."""

    scale: float
    """Of its loss."""
    lowered: float
    """The next smaller scale."""
    finite: int
    """The first pass from there on whose gradients are finite."""


def loss_scale(trace: Trace, graph_task: int) -> float | None:
    """By what the loss was multiplied last, as ``GradScaler.scale`` does; None: by nothing known.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    roots = [0]
    if trace.graph_task(graph_task).roots > 1:  # node 0 is the GraphRoot
        roots = [edge.consumer for edge in trace.edges_from(graph_task, 0)]
    for root in roots:
        if trace.name(graph_task, root) != _SCALED_BY:
            continue
        put_out = (row for row in trace.health(graph_task, root) if row.role == "output")
        for row in put_out:
            if row.slot == 0 and row.numel == 1 and not bad(row):
                return magnitude(row)
    return None


def skipped(trace: Trace, graph_task: int, nonfinite: Container[int]) -> Skipped | None:
    """How the step of a pass was left out for its loss scale; None where that is not recorded.

    Args:
        trace: the recording.
        graph_task: the pass, an outermost one.
        nonfinite: the outermost passes some of whose gradients are not finite.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    scale = loss_scale(trace, graph_task)
    if not scale:
        return None
    steps = trace.optimizer_steps(graph_task)
    if not steps:
        return None
    changed = min((step.graph_task for step in steps if not step.is_guarded), default=None)
    lowered = None
    for task in trace.graph_tasks.outermost.after(graph_task):
        if lowered is None:
            if changed is not None and changed < task.id:
                return None
            now = loss_scale(trace, task.id)
            lowered = now if now and now < scale else None
        is_finite = task.status is GraphTaskStatus.FINISHED and task.id not in nonfinite
        if lowered is not None and is_finite and steps[-1].graph_task >= task.id:
            return Skipped(scale, lowered, task.id)
    return None
