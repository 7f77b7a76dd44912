"""Parameters that a step made non-finite, buffers that a forward did, and steps always skipped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.explanation import explain
from agviz.analysis.loss_scale import loss_scale
from agviz.analysis.measures import number
from agviz.analysis.patterns.overflow import OVERFLOWS
from agviz.analysis.program_writes import (
    memories_of_buffers,
    memories_of_parameters,
    nonfinite_write,
)
from agviz.analysis.steps.finding import StepFinding, listed, parameters
from agviz.analysis.steps.source_calls import calls, is_new_scale, state_written
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping, TakenStep
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame

_LEAST: Final = 3
_SMALLEST: Final = {"float16": 2.0**-25, "bfloat16": 2.0**-134}
"""Half of the smallest number above 0 of a dtype: what is not larger is 0 in it."""
_MODEST: Final = 0.1
"""Of its norm: a step that changed a parameter by less is not too large."""
_LEAST_EPS: Final = 1e-20
_LARGEST: Final = 1e15
"""A gradient whose square float32 still holds."""
_STATISTICS: Final = ("running_mean", "running_var")


def spoilt(run: RunSteps) -> Iterator[StepFinding]:
    """Parameters that were finite, with finite gradients, before a step."""
    rows = run.trace.not_finite()
    wrong = [row for row in rows if not row.is_buffer]
    if not wrong:
        return
    seen = wrong[0].graph_task
    wrong = [row for row in wrong if row.graph_task == seen and row.step >= 0]
    before = run.first_wrong
    # What is wrong in an earlier pass explains it, whatever a step has done.
    if not wrong or (before is not None and (seen < 0 or before < seen)):
        return
    by = {each.optimizer.number: each for each in run.optimizers}.get(wrong[0].optimizer)
    if by is None:
        return
    names = [row.name for row in wrong if row.optimizer == by.optimizer.number]
    taken = next((one for one in by.steps if one.number == wrong[0].step), by.steps[-1])
    were = "were" if len(names) > 1 else "was"
    # A norm that is missing though nothing lacks a gradient was none: NaN or infinite.
    lost = [] if taken.fact.without_grad else _lost(taken)
    frame = by.stepped
    evidence = () if by.made is None else (f"{by.name} was made at {by.made}",)
    until = "Every loss and every gradient that was measured until then is finite"
    if lost:
        heading = f"gradients became non-finite between backward and step of {by.name}"
        did = (
            f"{until}, but the gradient of {listed(lost)} no longer was when the step was"
            " called: look at what divides, clips or unscales gradients between backward and step."
        )
    elif (is_step := _by_step(by, names)) is not True and (op := _write(run, names)) is not None:
        heading = f"{op.name} made {parameters(names)} non-finite"
        frame = op.frame
        did = (
            f"No step did it: {op.name}, which the program called itself, was the first that left"
            f" it so, at {op.line}. Look at its arguments: by what it divides, or what it copies."
        )
        evidence = ()
    elif is_step is False:
        heading = f"{parameters(names)} became non-finite between two steps of {by.name}"
        did = (
            f"{until}, and no step did it: it was finite when a step ended, and no longer when the"
            " next was called. Look at what writes to it in between: a norm that it is divided by,"
            " an average, a state dict."
        )
    elif is_step:
        heading = f"a step of {by.name} made {parameters(names)} non-finite"
        did = f"{until}: the step did it. {_why(run.trace, by, names)}"
        frame = state_written(run.trace, by.stepped) or frame
    else:
        heading = f"{parameters(names)} became non-finite, in a step of {by.name} or after it"
        did = (
            f"{until}. Whether the step did it or what else writes to it was not measured."
            f" {_why(run.trace, by, names)}"
        )
    when = f"before backward pass {seen}" if seen >= 0 else "at the end of the recording"
    yield StepFinding(
        kind="spoilt",
        heading=heading,
        frame=frame,
        paragraph=(
            f"{parameters(names)} {were} not finite {when}, after step {taken.number} of"
            f" {by.name}. {did}"
        ),
        evidence=evidence,
        first_pass=seen if seen >= 0 else None,
    )


def _lost(taken: TakenStep) -> list[str]:
    return [row.parameter for row in taken.sample if row.parameter and row.gradient is None]


def _by_step(by: Stepping, names: Sequence[str]) -> bool | None:
    """Whether a step of an optimizer made one of its parameters non-finite.

    A step that changed it by a finite norm left it finite. None: it was not measured.
    """
    was_finite: set[str] = set()
    for taken in by.steps:
        for row in taken.sample:
            if row.parameter not in names:
                continue
            if row.norm is None:
                return False if row.parameter in was_finite else None
            if row.change is None:
                return True
            was_finite.add(row.parameter)
    return None


def _write(run: RunSteps, names: Sequence[str]) -> ForwardOpRow | None:
    """The function by which the program itself made one of some parameters non-finite."""
    memories = memories_of_parameters(run.trace, names)
    return nonfinite_write(
        run.trace, lambda _op, row: row.parameter in names or row.memory in memories
    )


def _why(trace: Trace, by: Stepping, names: Sequence[str]) -> str:
    if not by.is_torchs:
        return "Its step is the program's own: look at what that divides by."
    eps = by.steps[-1].fact.eps
    dtypes = {row.dtype for row in by.held if row.name in names}
    half = next((dtype for dtype in dtypes if dtype in _SMALLEST), None)
    at = "" if by.made is None else f" ({by.made})"
    if eps == 0:
        return (
            f"Its eps is 0{at}: where a gradient has always been 0, {by.name} divides 0 by 0. Keep"
            " an eps above 0."
        )
    if eps is not None and half is not None and eps <= _SMALLEST[half] * 2:
        return (
            f"Its eps of {number(eps)} is 0 in {half}{at}, and so is the square of a small"
            f" gradient: {by.name} divides by 0. Keep parameters in float32 under autocast, or take"
            " a larger eps."
        )
    known = [row for taken in by.steps for row in taken.sample if row.change is not None]
    rate = max((taken.fact.most_rate or 0.0 for taken in by.steps), default=0.0)
    moved = max((row.change / row.norm for row in known if row.change and row.norm), default=1.0)
    largest = max((row.gradient or 0.0 for row in known), default=math.inf)
    usual = [
        f"a learning rate of {number(rate)} that is too large" * (moved > _MODEST),
        "an eps that is too small" * (eps is None or eps < _LEAST_EPS or bool(half)),
        f"a second moment that overflows{f' in {half}' if half else ''}"
        * (largest > _LARGEST or bool(half)),
    ]
    written = state_written(trace, by.stepped)
    if written is not None:
        return f"Line {written.line} writes to its averages: look at what it leaves there first."
    if not any(usual):
        return (
            f"Its rate, its eps and the gradients were moderate{at}: look at its averages, which"
            " load_state_dict, or a write to its state, may have spoilt."
        )
    return f"Usual reasons: {', or '.join(filter(None, usual))}{at}."


def buffers(run: RunSteps) -> Iterator[StepFinding]:
    """Running statistics that are NaN though every gradient was finite."""
    if run.first_wrong is not None:
        return
    wrong = [
        row.name
        for row in run.trace.not_finite()
        if row.is_buffer and row.name.endswith(_STATISTICS)
    ]
    if not wrong:
        return
    names = list(dict.fromkeys(wrong))
    are = "are" if len(names) > 1 else "is"
    memories = memories_of_buffers(run.trace, names[0].rpartition(".")[0])
    op = nonfinite_write(
        run.trace,
        lambda op, row: row.memory in memories and not op.name.endswith("batch_norm"),
    )
    if op is not None:
        yield StepFinding(
            kind="buffer",
            heading=f"the running statistics hold NaN: {listed(names)}",
            frame=op.frame,
            paragraph=(
                f"{listed(names)} {are} NaN at the end, though every loss on which backward was"
                f" called, and every gradient, is finite. {op.name}, which the program called"
                f" itself, wrote it at {op.line}. Look at its arguments: by what it divides, or"
                " what it copies. In eval() all outputs are NaN now."
            ),
        )
        return
    yield StepFinding(
        kind="buffer",
        heading=f"the running statistics hold NaN: {listed(names)}",
        frame=_forward_of(run, names[0].rpartition(".")[0]),
        paragraph=(
            f"{listed(names)} {are} NaN at the end, though every loss on which backward was called,"
            " and every gradient, is finite. A batch norm updates them in its forward while it"
            " trains: a batch with NaN or infinities, or activations that overflow, spoils them for"
            " good, also where no backward or step follows. Check the input before the forward; in"
            " eval() all outputs are NaN now."
        ),
    )


def _forward_of(run: RunSteps, module: str) -> Frame | None:
    if not run.passes:
        return None
    last = run.passes[-1].id
    for node in run.trace.nodes(last):
        if node.module == module and node.frame is not None:
            return node.frame
    return visible(run.trace.call_site(last))


def never_steps(run: RunSteps) -> Iterator[StepFinding]:
    """A loss scale under which every pass overflows, so that a GradScaler skips every step."""
    passes = run.passes
    if len(passes) < _LEAST or run.rows:
        return
    if not set(passes.ids).issubset(run.trace.nonfinite_results()):
        return
    scales = [loss_scale(run.trace, task.id) for task in passes[: 2 * _LEAST]]
    if any(scale is None or scale < 2 or scale < (scales[0] or 0) for scale in scales):
        return
    found = explain(run.trace, passes[0].id)
    if found is None or found.finding is None or found.finding.pattern not in OVERFLOWS:
        return
    call = visible(run.trace.call_site(passes[-1].id))
    lines = calls(run.trace, call, is_new_scale)
    frame = lines[0] if len(lines) == 1 else call
    remedy = (
        f"Line {lines[0].line} sets it anew in each step: call update() without an argument, which"
        " lowers it until gradients are finite."
        if len(lines) == 1
        else "Call scaler.update() after each step: it lowers the scale until gradients are finite."
    )
    yield StepFinding(
        kind="always skipped",
        heading="every optimizer step is skipped: the loss scale is too large, and stays so",
        frame=frame,
        paragraph=(
            f"The loss scale is {number(scales[0] or 0)} in {plural(len(passes), 'pass', 'passes')}"
            " and makes gradients overflow in each, so that a GradScaler skips the step; no"
            f" optimizer ever stepped. {remedy}"
        ),
        first_pass=passes[0].id,
    )
