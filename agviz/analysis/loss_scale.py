"""Loss scales, and the steps that are skipped until one fits.

Note [Skipped steps]
A ``torch.amp.GradScaler`` begins with a scale of 65,536. Where that makes a gradient overflow, it
skips the optimizer's step and halves the scale, until gradients are finite. So the first passes of
a healthy training may hold infinities. A trace shows that where the loss was multiplied last by a
scale, no optimizer stepped before a later pass had a smaller one, and a pass from there on was
finite and was followed by a step. Whatever of this is missing, nothing is called harmless.

The scale may also make the loss itself infinite. No gradient contains that value: where all are
finite, or the step was skipped so, it is harmless.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.blame import blame
from agviz.analysis.measures import LARGEST, bad, magnitude
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from collections.abc import Container

    from agviz.traces.reader import Trace

_SCALED_BY: Final = "MulBackward0"
_LEAST_SCALE: Final = 1024.0
"""Smaller ones are weights of a loss, which make it no larger than it is meant to be."""
_LARGEST_LOSS: Final = 1e6
"""A larger one diverges by itself, whatever it is scaled by."""


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
    task = trace.graph_task(graph_task)
    if not task.nodes:  # the recording ended before its graph had been walked
        return None
    roots = [0]
    if task.roots > 1:  # node 0 is the GraphRoot
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


def is_scaled_beyond(trace: Trace, graph_task: int, nonfinite: Container[int]) -> bool:
    """Whether a loss is infinite by its loss scale only, and no step follows from it that is wrong.

    Args:
        trace: the recording.
        graph_task: the pass, an outermost one.
        nonfinite: the outermost passes some of whose gradients are not finite.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    wrong = [root.health for root in trace.roots(graph_task) if bad(root.health)]
    scale = loss_scale(trace, graph_task) or 0.0
    if scale < _LEAST_SCALE or any(
        one.nan or LARGEST.get(one.dtype, math.inf) > _LARGEST_LOSS * scale for one in wrong
    ):
        return False
    if trace.meta.check_forward:
        began, made = blame(trace, graph_task, 0), trace.forward_op(graph_task, 0)
        if began is None or made is None or began.op.id != made.id:
            return False
    return graph_task not in nonfinite or skipped(trace, graph_task, nonfinite) is not None
