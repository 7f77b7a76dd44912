"""Optimizers that never step, though gradients come.

Of gradients that nobody clears, and of a program that writes no step, nothing is said: it may be
gradients that it is after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import (
    calls,
    catching,
    conditions,
    is_schedule,
    is_step,
    uses_gradients,
)
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame


def idle(run: RunSteps) -> Iterator[StepFinding]:
    """What is found where no optimizer ever stepped, and all gradients are finite."""
    if not run.idle or run.first_wrong is not None:
        return
    names = listed([each.name for each in run.idle])
    frame = visible(run.trace.call_site(run.passes[-1].id))
    if uses_gradients(run.trace, frame):
        return
    schedules = calls(run.trace, frame, is_schedule)
    beside = ""
    if schedules:
        lines = listed([str(each.line) for each in schedules])
        beside = f" The scheduler's step in line {lines} changes the learning rate only."
    written = calls(run.trace, frame, is_step)
    if not written and not calls(run.trace, frame, lambda _, name: name.endswith("zero_grad")):
        return
    remedy = "Call optimizer.step() after backward if they are to be trained."
    if len(written) == 1 and frame is not None:
        hidden = catching(run.trace, frame, written[0])
        frame = written[0]
        remedy = _why_not(run, frame)
        if hidden is not None:
            remedy = (
                f"Line {frame.line} calls step, but what comes between it and backward raises each"
                f" time, and except in line {hidden.line} hides that. Unless it is meant, as in a"
                " dry run, print the exception there."
            )
            frame = hidden
    yield StepFinding(
        kind="never steps",
        heading=f"{names} never {'steps' if len(run.idle) == 1 else 'step'}",
        frame=frame,
        paragraph=(
            f"No optimizer stepped in {len(run.passes):,} backward passes: the gradients of"
            f" what {names} holds came, and the parameters that were looked at are what they were."
            f"{beside} {remedy}"
        ),
        evidence=tuple(f"{each.name} was made at {each.frame}" for each in run.idle if each.frame),
    )


_LONGEST: Final = 60
"""Letters of a condition that are shown."""


def _why_not(run: RunSteps, step: Frame) -> str:
    """Why a step that is written in one line never came, as far as the text tells."""
    tests = conditions(run.trace, step)
    if not tests:
        return (
            f"Line {step.line} calls step, but the program never came there: look for what ends"
            " each turn before it (continue, return, an exception that is caught)."
        )
    test = tests[-1] if len(tests[-1]) <= _LONGEST else f"{tests[-1][:_LONGEST]}…"
    if "%" in test:
        often = "with too few batches, or a count that begins anew, it never is"
        return (
            f"Line {step.line} calls step only where {test}: {often}. Step after the last batch of"
            " an epoch, too."
        )
    return f"Line {step.line} calls step only where {test}, and it never came there."
