"""Schedulers that a program makes and never steps: the learning rate stays where it began.

Note [Never stepped]
The text gives a scheduler of torch a name, and no line of the file speaks of that name again: not
to step it, to save it or to hand it on. The rate of the optimizer was the same at all of its steps.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, tree_of
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.remaking import SCHEDULERS
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_LEAST: Final = 3
"""Steps."""


def unstepped(run: RunSteps) -> Iterator[StepFinding]:
    """The first scheduler that nothing steps. Note [Never stepped]."""
    rates = {taken.fact.most_rate for each in run.optimizers for taken in each.steps}
    if len(rates) != 1 or None in rates or max(len(e.steps) for e in run.optimizers) < _LEAST:
        return
    for file, function, node in run.statements():
        match node:
            case ast.Assign(
                targets=[ast.Name() | ast.Attribute() as target], value=ast.Call() as call
            ) if called_name(call) in SCHEDULERS:
                name = ast.unparse(target)
            case _:
                continue
        tree = tree_of(run.trace, file)
        if any(_reads(each, name) for each in ast.walk(tree)):
            continue
        count = plural(max(len(each.steps) for each in run.optimizers), "step")
        yield StepFinding(
            kind="schedule unused",
            heading=f"{name} is never stepped: the learning rate stays as it began",
            frame=line_at(run.trace, file, node.lineno, function),
            paragraph=(
                f"{called_name(call)} is made here, and nothing speaks of {name} again. The"
                f" learning rate was {number(rates.pop() or 0.0)} at all of {count}; a warm-up"
                f" or a cycle has lowered it already when it is made. Call {name}.step() after"
                " each step of the optimizer, or once per epoch, as it is made for; or leave it"
                " out."
            ),
        )
        return


def _reads(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node) == name
    )
