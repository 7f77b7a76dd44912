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
    """A state dict of before some steps that is loaded and holds the parameters of now."""
    trace = run.trace
    onto_itself = trace.written_onto_themselves() if trace.meta.check_forward else []
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


def shared(run: RunSteps) -> Iterator[StepFinding]:
    """What is kept beside parameters, as an average of them, and shares their memory."""
    trace = run.trace
    times = [step.time_ns for step in trace.optimizer_steps()]
    for op in trace.written_onto_themselves() if trace.meta.check_forward else ():
        rows = [row for row in op.inputs[:2] if not row.parameter]
        made = [one for row in rows if (one := trace.forward_first(row.tensor)) is not None]
        sharing = [one for one in made if one.name.endswith(_SHARING)]
        sources = {row.tensor for row in op.inputs[:2] if row.parameter}
        sources |= {one.inputs[0].tensor for one in sharing}
        if len(sharing) < max(1, len(rows)) or len(sources) > 1 or _is_load(op):
            continue
        taken, (source,) = min(sharing, key=lambda one: one.id), sources
        names = (
            row.parameter
            for one in trace.forward_taking(source)
            for row in one.inputs
            if row.tensor == source and row.parameter
        )
        frame, name = visible(taken.stack), next(names, "")
        is_later = any(taken.time_ns < time < op.time_ns for time in times)
        if frame is None or not name or not is_later or not _is_vain(run, op):
            continue
        what = last_name(op)
        yield StepFinding(
            kind="shared",
            heading=f"what is kept beside {name} shares its memory: it is no copy",
            frame=frame,
            paragraph=(
                f"{last_name(taken)} gives the very memory of a parameter, which steps of an"
                f" optimizer went on to change. {what} at {op.line} then puts the one into the"
                " other, which are the same numbers: an average (EMA), a shadow or best weights"
                " kept so are always those of now. Clone them: p.detach().clone()."
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
