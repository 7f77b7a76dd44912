"""Tensors whose ``.grad`` stays None: no leaves, and leaves that the graph does not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow


READ_ONLY: Final = "read of no leaf"
"""The kind where nothing shows that the program wants more of the gradient than to look at it."""
_PARAMETRIZED: Final = "torch/nn/utils/parametrize.py"


def nonleaf_gradient(trace: Trace) -> StepFinding | None:
    """The tensors whose ``.grad`` the program wants in vain first; None: there are none.

    Only where the forward was recorded, and where a line of the program itself reads it, or asks
    for it.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for op in trace.gradient_reads():
        tensor = op.inputs[0] if op.inputs else None
        if tensor is None or op.frame is None or not op.stack or op.stack[-1].hidden:
            continue
        made = trace.forward_giving(tensor.tensor, tensor.version, op.id)
        if made is not None and any(row.tensor == tensor.tensor for row in made.outputs):
            return _no_leaf(made, op)
    by_line = {op.line: op for op in trace.gradient_requests()}
    late = (_late(trace, op) for op in by_line.values())
    return next((each for each in late if each is not None), None)


def _no_leaf(made: ForwardOpRow, reading: ForwardOpRow) -> StepFinding:
    """What a function gave, whose ``.grad`` a line reads."""
    frame, read, kind = made.frame, reading.frame, READ_ONLY
    at = "" if frame is None else f" at {frame}"
    remedy = (
        "If it is to be trained, make it a leaf: compute its value first, then call"
        " requires_grad_() on it. If only its gradient is wanted, call retain_grad() on it before"
        " backward."
    )
    if any(each.file.endswith(_PARAMETRIZED) for each in made.stack):
        remedy = (
            "It is computed anew by a parametrization each time it is read; leaves, with their"
            " gradients, are what it is computed of (module.parametrizations)."
        )
    elif frame == read and made.graph_task != reading.graph_task:
        kind = "no leaf"
        remedy = (
            "This line reads the gradient of what it made itself in the step before: it binds the"
            " name to a new tensor, where it should write into the old one. Write under"
            " torch.no_grad(): w -= rate * w.grad, then w.grad = None; or take an optimizer."
        )
    return StepFinding(
        kind=kind,
        heading="the gradient of a tensor that is no leaf was read: it stays None",
        frame=frame or read,
        paragraph=(
            f"The tensor is what {made.name} gave{at}, and its .grad was read at {read}. torch puts"
            f" gradients into leaves only. {remedy}"
        ),
        evidence=tuple(f"made at {each}" for each in made.stack if not each.hidden),
    )


def _late(trace: Trace, asked: ForwardOpRow) -> StepFinding | None:
    """Where a tensor was used before it was made to require a gradient, and not since."""
    tensor = asked.inputs[0] if asked.inputs else None
    if tensor is None or tensor.requires_grad or tensor.parameter or asked.frame is None:
        return None
    used: ForwardOpRow | None = None
    for op in trace.forward_taking(tensor.tensor):
        if op.id > asked.id:
            return None
        if op.id < asked.id and op.sequence_nr is not None and op.graph_task == asked.graph_task:
            used = op
    if used is None or used.graph_task < 0:
        return None
    return StepFinding(
        kind="late leaf",
        heading="requires_grad was set after the forward, which had used the tensor before",
        frame=asked.frame,
        paragraph=(
            f"When {used.name} used the tensor at {used.frame}, it did not require a gradient, so"
            " that the graph does not hold it. Nothing used it later: its .grad stays None. Call"
            " requires_grad_() on it before the forward."
        ),
    )
