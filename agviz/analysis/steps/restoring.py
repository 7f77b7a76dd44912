"""Weights that are to be restored from, or averaged into, what was never a copy of them.

``state_dict()`` and ``detach()`` give the memory of the parameters, which steps go on to change.
Loading it again copies each onto itself, and an average of both is what both are. Seen only with
``check_forward``, which records these functions.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import last_name
from agviz.analysis.steps.finding import StepFinding, parameters
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import ForwardOpRow

_LOADS: Final = "load_state_dict"
_SHARING: Final = (".data.__get__", ".detach")
_BEFORE: Final = 100
"""Functions before one that adds, among which that is looked for which scaled."""
_NUMBER: Final = re.compile(r"[\d.e+-]+$")
_MOST_OPS: Final = 20_000


def restores_nothing(run: RunSteps) -> Iterator[StepFinding]:
    """What was taken of parameters before some steps, and holds what they are now."""
    trace = run.trace
    onto_itself = trace.written_onto_themselves() if trace.meta.check_forward else []
    times = [step.time_ns for step in trace.optimizer_steps()]
    for op in onto_itself:
        rows = [row for row in op.inputs[:2] if not row.parameter]
        made = filter(None, [trace.forward_first(row.tensor) for row in rows])
        sharing = [one for one in made if one.name.endswith(_SHARING)]
        sources = {row.tensor for row in op.inputs[:2] if row.parameter}
        sources |= {one.inputs[0].tensor for one in sharing}
        if len(sharing) < max(1, len(rows)) or len(sources) > 1:
            continue
        taken = min(sharing, key=lambda one: one.id)
        steps = sum(taken.time_ns < time < op.time_ns for time in times)
        frame, used = visible(taken.stack), visible(op.stack)
        if frame is None or used is None or not steps or not _is_vain(run, op):
            continue
        beside = [
            one
            for one in trace.forward_ops(op.graph_task, limit=_MOST_OPS)
            if one.name == op.name and visible(one.stack) == used and _is_load(one) == _is_load(op)
        ]
        if not {one.id for one in beside} <= {one.id for one in onto_itself}:
            return  # it is given something else, too, which may be all that it is for
        taking = [*beside, *trace.forward_taking(min(sources))[:1]]
        names = {row.parameter for one in taking for row in one.inputs[:2]} - {""}
        does = "loading copied it onto itself"
        heading = "load_state_dict restores nothing: it is given the parameters themselves"
        remedy = "copy.deepcopy(model.state_dict())"
        if not _is_load(op):
            does = f"{last_name(op)} put it into itself, so that it is never any other"
            heading = "what is kept beside parameters shares their memory: it is no copy"
            remedy = "p.detach().clone()"
        yield StepFinding(
            kind="restores nothing",
            heading=heading,
            frame=frame,
            paragraph=(
                f"What line {used.line} takes for a copy of {parameters(sorted(names))} was taken"
                f" here and is none: state_dict() and {last_name(taken)} give their very memory."
                f" {plural(steps, 'step')} later it held what they had become, and {does}. Keep a"
                f" copy: {remedy}."
            ),
        )
        return


def _is_vain(run: RunSteps, op: ForwardOpRow) -> bool:
    """Whether a function that mixes a tensor with itself gives what it was: its shares add to 1."""
    if not op.name.endswith("add_"):
        return True
    written = run.trace.forward_changes(op.inputs[0].memory, max(-1, op.id - _BEFORE))
    before = [one for one in written if one.id < op.id]
    shares = [_NUMBER.search(one.arguments) for one in (*before[-1:], op)]
    numbers = [float(share[0]) for share in shares if share is not None]
    is_scaled = bool(before) and before[-1].name.endswith(".mul_")
    return is_scaled and len(numbers) == len(shares) and math.isclose(sum(numbers), 1.0)


def _is_load(op: ForwardOpRow) -> bool:
    return any(frame.hidden and frame.function == _LOADS for frame in op.stack)
