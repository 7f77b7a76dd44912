"""Weights that are to be restored from what was never a copy of them.

``state_dict()`` gives the memory of the parameters, which steps go on to change. Loading it again
copies each onto itself. Seen only with ``check_forward``, which records these copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding, parameters
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import ForwardOpRow

_LOADS: Final = "load_state_dict"
_MOST_OPS: Final = 20_000


def restores_nothing(run: RunSteps) -> Iterator[StepFinding]:
    """A state dict of before some steps that is loaded and holds the parameters of now."""
    trace = run.trace
    onto_itself = trace.copies_onto_themselves() if trace.meta.check_forward else []
    onto_itself = [op for op in onto_itself if _is_load(op)]
    for first in onto_itself[:1]:
        loaded, given = visible(first.stack), first.inputs[1].tensor
        beside = [
            op
            for op in trace.forward_ops(first.graph_task, limit=_MOST_OPS)
            if op.name == first.name and _is_load(op) and visible(op.stack) == loaded
        ]
        if not {op.id for op in beside} <= {op.id for op in onto_itself}:
            return  # it is given something else, too, which may be all that it is for
        taken = trace.forward_first(given)
        if taken is None or given not in {row.tensor for row in taken.outputs}:
            return
        times = [step.time_ns for step in trace.optimizer_steps()]
        steps = sum(taken.time_ns < time < first.time_ns for time in times)
        names = sorted({op.inputs[0].parameter for op in beside if op.inputs[0].parameter})
        frame = visible(taken.stack)
        if frame is None or loaded is None or not steps or not names:
            return
        yield StepFinding(
            kind="restores nothing",
            heading="load_state_dict restores nothing: it is given the parameters themselves",
            frame=frame,
            paragraph=(
                f"What line {loaded.line} loads into {parameters(names)} was taken here and is no"
                " copy: state_dict() gives the very memory of the parameters."
                f" {plural(steps, 'step')} later it held what they had become, and loading copied"
                " it onto itself. Keep a copy: copy.deepcopy(model.state_dict())."
            ),
        )


def _is_load(op: ForwardOpRow) -> bool:
    return any(frame.hidden and frame.function == _LOADS for frame in op.stack)
