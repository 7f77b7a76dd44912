"""Optimizers that never step, though gradients come and are cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls, is_schedule, uses_gradients
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps


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
    yield StepFinding(
        kind="never steps",
        heading=f"{names} never {'steps' if len(run.idle) == 1 else 'step'}",
        frame=frame,
        paragraph=(
            f"No optimizer stepped in {len(run.passes):,} backward passes: the gradients of"
            f" what {names} holds came and were cleared, and the parameters that were looked at are"
            f" what they were.{beside} Call optimizer.step() after backward if they are to be"
            " trained."
        ),
        evidence=tuple(f"{each.name} was made at {each.frame}" for each in run.idle if each.frame),
    )
