"""Weights that are to be restored from, or averaged into, what was never a copy of them.

``state_dict()`` and ``detach()`` give the memory of the parameters, which steps go on to change.
Loading it again copies each onto itself, and an average of both is what both are. Seen only with
``check_forward``, which records these functions.

Note [The average of which]
A teacher is the average of what a student was. Where what an optimizer trains is mixed with
parameters of another module, to which nothing ever writes, it is the wrong way round. An anchor
that weights are pulled to on purpose is no parameter of a module which is called.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import last_name
from agviz.analysis.measures import number
from agviz.analysis.program_writes import written
from agviz.analysis.steps.finding import StepFinding, parameters
from agviz.analysis.steps.loading import given_its_own
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame

_LOADS: Final = "load_state_dict"
_SHARING: Final = (".data.__get__", ".detach")
_LEAST_LOADS: Final = 2
"""Of a state that was taken at the same time: one may be a trial of the function."""
_BEFORE: Final = 100
"""Functions before one that adds, among which that is looked for which scaled."""
_NUMBER: Final = re.compile(r"[\d.e+-]+$")
_MOST_OPS: Final = 20_000
_LAST: Final = 8
"""Passes before which is looked at what was mixed."""
_LEAST: Final = 3
_MOST_BEHIND: Final = 12
"""Functions that computed what is written."""
_MIXING: Final = frozenset({"add_", "copy_", "lerp_"})
_WORKED_OUT: Final = frozenset(
    {"__add__", "__mul__", "__rmul__", "__sub__", "add", "lerp", "mul"}
) | {"__get__", "clone", "detach", "sub"}


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
        if frame is None or used is None or not _is_vain(run, op):
            continue
        if not steps:
            times_loaded = {one.graph_task for one in onto_itself if visible(one.stack) == used}
            if (
                not _is_load(op)
                or len(times_loaded) < _LEAST_LOADS
                or given_its_own(trace, used.file, used.line)
            ):
                continue
        beside = [
            one
            for one in trace.forward_ops(op.graph_task, limit=_MOST_OPS)
            if one.name == op.name and visible(one.stack) == used and _is_load(one) == _is_load(op)
        ]
        if not {one.id for one in beside} <= {one.id for one in onto_itself}:
            return  # it is given something else, too, which may be all that it is for
        if not steps:
            yield _loaded_at_once(used, beside)
            return
        taking = [*beside, *trace.forward_taking(min(sources))[:1]]
        names = {row.parameter for one in taking for row in one.inputs[:2]} - {""}
        copy = f"a copy of {parameters(sorted(names))}" if names else "a copy of parameters"
        does = "loading copied it onto itself"
        heading = "load_state_dict restores nothing: it is given the parameters themselves"
        remedy = "copy.deepcopy(model.state_dict())"
        if not _is_load(op):
            does = f"{last_name(op)} put it into itself, so that it is never any other"
            kept, added = _shares(run, op)
            if kept:
                does = (
                    "mul_ and add_ multiplied it, and so what is trained, by"
                    f" {number(kept * (1 + added))}: nothing is averaged"
                )
            heading = "what is kept beside parameters shares their memory: it is no copy"
            remedy = "p.detach().clone()"
        yield StepFinding(
            kind="restores nothing",
            heading=heading,
            frame=frame,
            paragraph=(
                f"What line {used.line} takes for {copy} was taken here and is none: state_dict()"
                f" and {last_name(taken)} give their very memory. {plural(steps, 'step')} later it"
                f" held what they had become, and {does}. Keep a copy: {remedy}."
            ),
        )
        return


def _loaded_at_once(line: Frame, loads: Sequence[ForwardOpRow]) -> StepFinding:
    """What a line loads that takes the state of a module and gives it to the same one."""
    names = {row.parameter for one in loads for row in one.inputs[:2]} - {""}
    return StepFinding(
        kind="restores nothing",
        heading="load_state_dict copies a module onto itself: both are one and the same",
        frame=line,
        paragraph=(
            "What is loaded here was taken with no step in between, and has the memory of what it"
            f" is loaded into: {parameters(sorted(names)) if names else 'the parameters'}."
            " An assignment gives a module a second name, and no second set of weights: what is to"
            " lag behind, as a target network or a teacher, moves with each step. Make it by"
            " copy.deepcopy(model)."
        ),
    )


def pulled_back(run: RunSteps) -> Iterator[StepFinding]:
    """What is trained, and averaged with a module that never moves. Note [The average of which]."""
    trace = run.trace
    if not trace.meta.check_forward:
        return
    held = {row.name for each in run.optimizers for row in each.held} - {""}
    found: dict[str, list[tuple[ForwardOpRow, str, str, int]]] = {}
    for task in run.passes[-_LAST:]:
        ops = trace.forward_ops(task.id, limit=_MOST_OPS)
        names = {row.memory: row.parameter for op in ops for row in op.inputs if row.parameter}
        for op in ops:
            target = names.get(op.inputs[0].memory, "") if op.inputs else ""
            if last_name(op) not in _MIXING or target not in held or op.line is None:
                continue
            if any("torch/optim/" in frame.file for frame in op.stack) or not any(written(op)):
                continue
            source = _mixed_in(run, op, {row.tensor: one for one in ops for row in one.outputs})
            if names.get(source, "") not in held | {""}:
                found.setdefault(op.line, []).append((op, target, names[source], source))
    for rows in found.values():
        first = rows[0][0]
        memories = {memory for *_, memory in rows}
        if len({op.graph_task for op, *_ in rows}) < _LEAST or any(
            _is_written(trace, memory, first.id) for memory in memories
        ):
            continue
        targets = list(dict.fromkeys(target for _, target, _, _ in rows))
        sources = list(dict.fromkeys(source for _, _, source, _ in rows))
        yield StepFinding(
            kind="pulled back",
            heading="weights that are trained are averaged with others that never change",
            frame=first.frame,
            paragraph=(
                f"This line mixes {parameters(sources)} into {parameters(targets)}, which"
                " an optimizer trains: each time they are pulled back to what never moves, for"
                " nothing writes to the former. If those are to follow as an average (a teacher or"
                " target network), source and target are swapped: write to the former, and read"
                " the latter."
            ),
        )
        return


def _mixed_in(run: RunSteps, op: ForwardOpRow, makers: Mapping[int, ForwardOpRow]) -> int:
    """The one memory that a function mixes into another one's; -1: it does something else."""
    own = op.inputs[0].memory
    memories: set[int] = set()
    waiting = [row.tensor for row in op.inputs[1:2]]
    known = {row.tensor: row.memory for row in op.inputs}
    for _ in range(_MOST_BEHIND):
        if not waiting:
            break
        tensor = waiting.pop()
        maker = makers.get(tensor)
        if maker is None or last_name(maker) not in _WORKED_OUT or not maker.inputs:
            memories.add(known[tensor])
            continue
        known |= {row.tensor: row.memory for row in maker.inputs}
        waiting += [row.tensor for row in maker.inputs]
    is_own = own in memories  # as p.add_(rate * (q - p)), or p.copy_(a * p + b * q)
    is_mixed = is_own or last_name(op) == "lerp_" or (last_name(op) == "add_" and _is_vain(run, op))
    others = memories - {own}
    return others.pop() if is_mixed and len(others) == 1 and not waiting else -1


def _is_written(trace: Trace, memory: int, after: int) -> bool:
    return any(
        row.memory == memory for op in trace.forward_changes(memory, after) for row in written(op)
    )


def _is_vain(run: RunSteps, op: ForwardOpRow) -> bool:
    """Whether what a function mixes is an average of two: its shares add to 1."""
    return not op.name.endswith("add_") or math.isclose(sum(_shares(run, op)), 1.0)


def _shares(run: RunSteps, op: ForwardOpRow) -> tuple[float, float]:
    """What ``mul_`` left of a tensor, and what ``add_`` then adds to it; zeros: it is not so."""
    written = run.trace.forward_changes(op.inputs[0].memory, max(-1, op.id - _BEFORE))
    before = [one for one in written if one.id < op.id]
    if not (op.name.endswith("add_") and before and before[-1].name.endswith(".mul_")):
        return 0.0, 0.0
    left, added = (_NUMBER.search(one.arguments) for one in (before[-1], op))
    return (float(left[0]), float(added[0])) if left and added else (0.0, 0.0)


def _is_load(op: ForwardOpRow) -> bool:
    return any(frame.hidden and frame.function == _LOADS for frame in op.stack)
