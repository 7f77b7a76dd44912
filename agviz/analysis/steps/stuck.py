"""A step after which nothing is learnt any more: all gradients are 0, and the loss stays as it is.

Note [Stuck]
Gradients of exactly zero in pass after pass, for all leaves, while the loss is the same number
each time and not 0: what the loss is made of no longer depends on any parameter, as where all
units are dead or a softmax is one-hot. It was not so at first, so a step did it. A hinge that is
content has a loss of 0, and a training that has ended one that still moves in its last digits.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from agviz.analysis.gradient_flow import largest_factor
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import GraphTaskRow

STUCK: Final = "stuck"
"""The kind of what is found."""
_LAST: Final = 8
"""Passes that have to be alike."""
_SAME: Final = 1e-6
_FACTOR: Final = 1e3
"""Times as large as what it is given is what a node puts out that is named for it."""


def stuck(run: RunSteps) -> Iterator[StepFinding]:
    """The step after which all gradients are zero. Note [Stuck]."""
    last = list(itertools.islice(reversed(run.passes), _LAST))
    losses = [run.losses.get(task.id, math.nan) for task in last]
    is_same = losses and max(losses) - min(losses) <= _SAME * abs(losses[0])
    if len(last) < _LAST or not is_same or not losses[0]:
        return
    if not all(rows and not any(row.norm for row in rows) for rows in map(run.norms, last)):
        return
    every = list(run.passes)
    first = bisect_left(every, True, key=lambda task: _is_still(run, task))
    steps = [
        (each, taken)
        for each in run.optimizers
        for taken in each.steps
        if first and taken.graph_task == every[first - 1].id
    ]
    if not steps:
        return
    before = every[first - 1]
    each, taken = steps[-1]
    moved = max(
        ((row.change or 0.0) / row.norm for row in taken.sample if row.norm and row.change),
        default=0.0,
    )
    far = f" moved parameters by up to {number(moved)} times their norm, and" if moved else ""
    norm = math.hypot(*(row.norm for row in run.norms(before)))
    factor = largest_factor(run.trace, before, _FACTOR)
    why = (
        "Take a smaller learning rate, warm it up, or clip gradients."
        if factor is None
        else f"{factor.name} makes the gradient {number(factor.times)} times as large in that pass:"
        " look at what it multiplies by, as an exp of what was not its logarithm."
    )
    yield StepFinding(
        kind=STUCK,
        heading=f"nothing is learnt from backward pass {every[first].id} on: all gradients are 0",
        frame=each.stepped if factor is None else factor.frame,
        paragraph=(
            f"The loss is {number(losses[0])} in each of the last {_LAST} passes, and nothing that"
            f" it is made of depends on a parameter any more. In backward pass {before.id} the"
            f" gradients had a norm of {number(norm)}; the step of {each.name} after it{far} left"
            f" it so. {why}"
        ),
    )


def _is_still(run: RunSteps, task: GraphTaskRow) -> bool:
    return not any(row.norm for row in run.norms(task))
