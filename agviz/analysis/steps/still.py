"""Groups of an optimizer whose learning rate is 0 in each step, while others learn.

Note [Meant to stay]
A rate of 0 freezes a backbone or a teacher on purpose, for a while or for good. So a group is told
only where it holds a part of a module whose other parameters move, or the end of the model, and
where no line of the program sets a rate later on and no scheduler steps.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, nodes_of, targets_of, tree_of
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls, is_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_LEAST: Final = 3
"""Steps from which a rule is drawn."""


def still(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers of which a group has a rate of 0 throughout, and not all have."""
    for each in run.optimizers:
        facts = [taken.fact for taken in each.steps]
        if len(facts) < _LEAST or any(fact.least_rate != 0 or not fact.most_rate for fact in facts):
            continue
        names = _unmoved(each)
        why = _why(run, each, names)
        if not why or _is_set_later(run.trace, each):
            continue
        written = _written(run.trace, each)
        most = max(fact.most_rate or 0.0 for fact in facts)
        are, they = ("are", "they have") if len(names) > 1 else ("is", "it has")
        remedy = (
            "Leave lr out of that group to have the default; to take weights out of decay, set"
            " weight_decay to 0 instead."
            if written is not None
            else "Look at what gives that group its lr."
        )
        yield StepFinding(
            kind="still",
            heading=f"the learning rate of a group of {each.name} is 0 in all {len(facts):,} steps",
            frame=written or each.made,
            paragraph=(
                f"{listed(names)} {are} in it: no step has changed what {they}, though gradients"
                f" come, and {why} (learning rate up to {number(most)}). {remedy} If it is meant to"
                " stay as it is, requires_grad_(False) saves time."
            ),
        )


def _unmoved(each: Stepping) -> list[str]:
    """Named parameters that were measured, had gradients, and that no step has changed."""
    moved: dict[str, bool] = {}
    had_gradient: dict[str, int] = {}
    for taken in each.steps:
        for row in taken.sample:
            moved[row.parameter] = moved.get(row.parameter, False) or row.change != 0
            had = had_gradient.get(row.parameter, 0)
            had_gradient[row.parameter] = had + bool(row.gradient)
    return [
        name
        for name, is_moved in moved.items()
        if name and not is_moved and had_gradient[name] >= _LEAST
    ]


def _why(run: RunSteps, each: Stepping, names: list[str]) -> str:
    """Why a group is not likely to be frozen on purpose; empty: it may be. Note [Meant to stay]."""
    moved = {
        row.parameter
        for taken in each.steps
        for row in taken.sample
        if row.change and row.parameter
    }
    if not names or not moved:
        return ""
    owners = {name.rpartition(".")[0] for name in moved}
    held = {row.name.rpartition(".")[0]: row.name for row in each.held if row.name not in names}
    if all(name.rpartition(".")[0] in owners for name in names):
        return "others of the same modules move"
    order = [row.name for row in run.trace.parameters(run.passes[-1].id)] if run.passes else []
    last = order[-1].rpartition(".")[0] if order else ""
    is_end = any(name.rpartition(".")[0] == last for name in names) and bool(held)
    return "what is before them in the model moves" if is_end else ""


def _is_set_later(trace: Trace, each: Stepping) -> bool:
    """Whether a scheduler steps, or the program's text sets the rate of a group to a variable."""
    if calls(trace, each.stepped, is_schedule):
        return True
    files = {frame.file for frame in (each.made, each.stepped) if frame is not None}
    return any(
        isinstance(node, ast.Assign | ast.AugAssign)
        and any(_is_rate(target) for target in targets_of(node))
        for file in files
        for node in ast.walk(tree_of(trace, file))
    )


def _is_rate(target: ast.expr) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == "lr"
    )


def _written(trace: Trace, each: Stepping) -> Frame | None:
    """The one line of the file that makes the optimizer that writes a rate of 0 into a group."""
    if each.made is None:
        return None
    found = [
        line_at(trace, each.made.file, value.lineno, function)
        for function, node in nodes_of(trace, each.made.file)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
        and key.value == "lr"
        and isinstance(value, ast.Constant)
        and value.value == 0
    ]
    return found[0] if len(found) == 1 else None
