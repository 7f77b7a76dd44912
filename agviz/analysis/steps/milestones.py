"""A schedule whose milestones count epochs, stepped after each batch: it is over at once."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, own_name, tree_of, values_named
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import calls, is_schedule, made_at
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_SCHEDULE: Final = "MultiStepLR"
_EARLY: Final = 4
"""The last milestone is passed in this part of the run."""
_FALL: Final = 10.0
"""Times the rate at the end is that at first."""


def passed_early(run: RunSteps) -> Iterator[StepFinding]:
    """Milestones that fit the epochs of a run, and that batches pass."""
    for each in run.optimizers:
        rates = [taken.fact.most_rate or 0.0 for taken in each.steps]
        changes = [place for place, (a, b) in enumerate(itertools.pairwise(rates), 1) if a != b]
        if not changes or changes[-1] * _EARLY > len(rates):
            continue
        if not 0 < _FALL * rates[-1] <= rates[0]:  # a rate of 0 has a rule of its own
            continue
        lines = calls(run.trace, each.stepped, is_schedule)
        made = made_at(run.trace, lines[0]) if len(lines) == 1 else None
        if made is None or changes != _milestones(run, made):
            continue
        turns = _turns(run, lines[0])
        if len(turns) < 2 or turns[0] is None or turns[0] < changes[-1]:
            continue
        yield StepFinding(
            kind="milestones",
            heading=(
                f"the learning rate of {each.name} has passed all milestones after"
                f" {changes[-1]:,} of {plural(len(rates), 'step')}"
            ),
            frame=lines[0],
            paragraph=(
                f"{_SCHEDULE}, made at {made} with milestones={changes}, counts calls of step(),"
                f" and this line calls it after each batch: from step {changes[-1]:,} on the rate"
                f" is {number(rates[-1])}, {number(rates[0] / rates[-1])} times less than at first."
                f" For milestones that count the {turns[0]:,} turns of the outer loop, call step()"
                " once in each of these, after the loop over batches."
            ),
        )


def _milestones(run: RunSteps, made: Frame) -> list[int]:
    """The numbers that are written where a schedule is made; empty: they are not known."""
    for node in ast.walk(tree_of(run.trace, made.file)):
        if not (isinstance(node, ast.Call) and node.lineno == made.line):
            continue
        given = {word.arg: word.value for word in node.keywords}
        value = given.get("milestones", node.args[1] if len(node.args) > 1 else None)
        if called_name(node) == _SCHEDULE and isinstance(value, ast.List | ast.Tuple):
            found = [each.value for each in value.elts if isinstance(each, ast.Constant)]
            return [each for each in found if isinstance(each, int)]
    return []


def _turns(run: RunSteps, line: Frame) -> Sequence[int | None]:
    """How often each loop around a line turns, the outermost first; None: it is not known.

    Where a function is called in a loop, that is around the lines of the function.
    """
    tree = tree_of(run.trace, line.file)
    around = [line.line]
    around += [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called_name(node) == line.function
    ][:1]
    loops = [
        node
        for at in reversed(around)
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and node.lineno < at <= (node.end_lineno or node.lineno)
    ]
    return [_count(tree, loop.iter) for loop in loops]


def _count(tree: ast.Module, over: ast.expr) -> int | None:
    match over:
        case ast.Call(func=ast.Name(id="range" | "trange"), args=[ast.Constant(value=int() as n)]):
            return n
        case ast.Call(func=ast.Name(id="range" | "trange"), args=[given]) if own_name(given):
            values = set(values_named(tree, own_name(given)))
            value = values.pop() if len(values) == 1 else 0.0
            return int(value) if value >= 1 else None
        case ast.Call(func=ast.Name(id="tqdm"), args=[given, *_]):
            return _count(tree, given)
    return None
