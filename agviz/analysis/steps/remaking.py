"""Optimizers that are made anew in the midst of a run, and what goes wrong by that.

Note [Left behind]
A scheduler changes the rates of the optimizer that it was made with. Where another one takes over
what that held, and its rate stays the same though a line of the same loop, or function, steps a
scheduler, the scheduler was left with the old one. A second stage with a constant rate looks the
same but for that line.
"""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_beside
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.run import TORCHS
from agviz.analysis.steps.source_calls import calls, is_schedule
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_LEAST: Final = 4
"""Optimizers of one line, or steps from which a rule is drawn."""
_MOST_STEPS: Final = 2
"""Of an optimizer that is made anew in each step, or each other one."""
_FAR: Final = 2.0
"""Times the least rate, that the largest one is where a schedule gets anywhere."""
SCHEDULERS: Final = frozenset(
    {"CosineAnnealingLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR"}
    | {"PolynomialLR", "StepLR"}
)
_AVERAGING: Final = ("Adam", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Lion")
"""Beginnings of the names of those whose steps follow averages over earlier ones."""


def made_anew(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers with moments that one line makes in each step, for the same parameters."""
    by_line: dict[tuple[str, Frame | None], list[Stepping]] = {}
    for each in run.optimizers:
        if each.optimizer.made and each.name.startswith(_AVERAGING):
            by_line.setdefault((each.name, each.made), []).append(each)
    for (name, made), alike in by_line.items():
        if len(alike) < _LEAST or max(len(each.steps) for each in alike) > _MOST_STEPS:
            continue
        if len({frozenset(row.name for row in each.held) for each in alike}) > 1:
            continue
        if calls(run.trace, made, lambda _, name: name.endswith((".copy_", ".lerp_"))):
            continue  # the program may go on from elsewhere, as after an inner loop
        steps = sum(len(each.steps) for each in alike)
        yield StepFinding(
            kind="made anew",
            heading=f"{name} is made anew {len(alike):,} times for {plural(steps, 'step')}",
            frame=made,
            paragraph=(
                f"Each time this line is called, {name} begins without state, and it steps"
                f" {'once' if steps == len(alike) else 'twice at most'} before another takes its"
                " place: its averages of gradients never hold more than that, so that each step"
                " has about the size of the learning rate, whatever the gradient's. Make the"
                " optimizer once, before the loop, and hand it over."
            ),
        )


def left_behind(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers whose scheduler still holds the one before them. Note [Left behind]."""
    for old in run.optimizers:
        for new in run.optimizers:
            if old.steps[-1].number >= new.steps[0].number or new.made is None:
                continue
            held = {row.name for row in new.held if row.name}
            if held.isdisjoint(row.name for row in old.held):
                continue
            before, after = _rates(old), _rates(new)
            if len(set(before)) < 2 or len(after) < _LEAST or len(set(after)) > 1:
                continue
            lines = _stepped_with(run.trace, new.stepped)
            if len(lines) != 1 or len(after) < 2 * _longest_constant(before):
                continue
            yield StepFinding(
                kind="left behind",
                heading=f"the scheduler was left with an optimizer that {new.name} has replaced",
                frame=new.made,
                paragraph=(
                    f"The learning rate of the first {old.name} went from {number(before[0])} to"
                    f" {number(before[-1])}. {new.name}, made in line {new.made.line}, holds its"
                    f" parameters since, and its rate is {number(after[0])} at all"
                    f" {len(after):,} steps, though line {lines[0].line} goes on to step a"
                    " scheduler: that changes the old optimizer's rate only. Make a new scheduler"
                    " with the new optimizer, or keep the old one and call add_param_group."
                ),
            )
            return


def schedules_anew(run: RunSteps) -> Iterator[StepFinding]:
    """Schedulers that each turn of a loop makes anew for one optimizer, and that so get nowhere.

    A cycle in each turn that comes to its end, as with warm restarts, can be meant.
    """
    for each in run.optimizers:
        rates, line = _rates(each), each.stepped
        if line is None or len(rates) < 2 * _LEAST or not 0 < max(rates) < _FAR * min(rates):
            continue
        found = _made_in_turn(run.trace, line)
        if found is None:
            continue
        made, loop = found
        yield StepFinding(
            kind="schedule anew",
            heading=f"each turn of the loop in line {loop} makes the scheduler anew",
            frame=made,
            paragraph=(
                "So it begins from the start again and again, with its count of steps at 0: over"
                f" {len(rates):,} steps the learning rate of {each.name} stays between"
                f" {number(min(rates))} and {number(max(rates))}, and does not come to what the"
                " schedule leads to. Make the scheduler once, before the loop."
            ),
        )


def _made_in_turn(trace: Trace, line: Frame) -> tuple[Frame, int] | None:
    """The one line of a loop around a step that makes a scheduler, and the line of the loop.

    None: not one; or the loop makes the optimizer, too, so that each turn is a training.
    """
    for loop in nodes_beside(trace, line):
        if not isinstance(loop, ast.For):
            continue
        if isinstance(loop.iter, ast.List | ast.Tuple):  # stages, named one by one
            continue
        if not loop.lineno <= line.line <= (loop.end_lineno or loop.lineno):
            continue
        direct = [
            node.value
            for node in loop.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        ]
        made = [call for call in direct if called_name(call) in SCHEDULERS]
        others = [call for call in direct if called_name(call) in TORCHS]
        if len(made) == 1 and not others:
            return line_at(trace, line.file, made[0].lineno, line.function), loop.lineno
    return None


def _rates(each: Stepping) -> list[float]:
    return [taken.fact.most_rate for taken in each.steps if taken.fact.most_rate is not None]


def _longest_constant(rates: Sequence[float]) -> int:
    """For how many steps in a row the rate stayed the same, at most."""
    longest = count = 1
    for one, other in itertools.pairwise(rates):
        count = count + 1 if one == other else 1
        longest = max(longest, count)
    return longest


def _stepped_with(trace: Trace, stepped: Frame | None) -> list[Frame]:
    """The lines that step a scheduler in the loop in which a line is, or in its function."""
    if stepped is None:
        return []
    nodes = [
        node
        for node in nodes_beside(trace, stepped)
        if isinstance(node, ast.For | ast.While)
        and node.lineno <= stepped.line <= (node.end_lineno or 0)
    ]
    schedules = calls(trace, stepped, is_schedule)
    if not nodes:
        return schedules if stepped.function != "<module>" else []
    outer = min(nodes, key=lambda node: node.lineno)
    return [each for each in schedules if outer.lineno <= each.line <= (outer.end_lineno or 0)]
