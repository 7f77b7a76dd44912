"""Optimizers that step more than once on the same gradients."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls, is_step
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_LEAST: Final = 3
"""Passes that were stepped on twice, besides half of all."""


def stepped_again(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that step again and again without a backward pass in between."""
    for each in run.optimizers:
        if any(
            row.net is not None
            for last, taken in itertools.pairwise(each.steps)
            if last.graph_task == taken.graph_task
            for row in taken.sample
        ):
            continue  # the weights were written in between, as by a line search that puts them back
        passes = {taken.graph_task for taken in each.steps}
        again = {
            taken.graph_task
            for last, taken in itertools.pairwise(each.steps)
            if last.graph_task == taken.graph_task >= 0
            and taken.fact.without_grad < taken.fact.held
        }
        if len(again) < _LEAST or len(again) * 2 < len(passes):
            continue
        lines = calls(run.trace, each.stepped, is_step)
        where = ""
        if len(lines) > 1:
            where = f" Lines {listed([str(line.line) for line in lines])} call step."
        yield StepFinding(
            kind="stepped again",
            heading=f"{each.name} steps more than once on the same gradients",
            frame=lines[-1] if len(lines) > 1 else each.stepped,
            paragraph=(
                f"After {len(again):,} of {plural(len(passes), 'backward pass', 'backward passes')}"
                f" {each.name} stepped twice or more, with no backward in between: each gradient is"
                f" applied again at weights that it is not the gradient of.{where} Call it"
                " once after each backward; a GradScaler's step(optimizer) calls optimizer.step()"
                " itself."
            ),
        )
