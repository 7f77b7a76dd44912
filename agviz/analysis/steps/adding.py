"""Optimizers that are given new parameters again and again, and keep all.

Note [Given more and more]
Parameters that were trained, and have no gradient any more while others of their name take their
place, are left behind in ``param_groups``: with their state, and held for ever. Where all stay in
use, a network grows; it may be meant to, so that is said and not judged. Parts that are there from
the beginning and are unfrozen one after the other make an optimizer hold more, too: there the text
makes no module and no parameter where it calls ``add_param_group``.
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_by_function, nodes_of, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame
    from agviz.traces.step_facts import HeldParameterRow

_MODULE: Final = "<module>"
_LEAST: Final = 3
"""Times that an optimizer holds more than before."""
_LEAST_OF_ONE_NAME: Final = 2
"""Parameters without gradient: a model has only one at a time."""
_ADDS: Final = "add_param_group"


def left_in_groups(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that hold what others have replaced. Note [Given more and more]."""
    for each in run.optimizers:
        if not _is_given_more(each):
            continue
        told: dict[int, list[HeldParameterRow]] = {}
        for row in run.trace.held_parameters():
            if row.optimizer == each.optimizer.number:
                told.setdefault(row.since, []).append(row)
        last = told[max(told)]
        ever = {place for rows in told.values() for place, row in enumerate(rows) if row.had_grad}
        left = [last[place] for place in ever]
        left = [row for row in left if row.requires_grad and not row.had_grad]
        names = Counter(row.name for row in left if row.name)
        is_replaced = max(names.values(), default=0) >= _LEAST_OF_ONE_NAME
        adding = list(_adding(run.trace))
        if len(left) < _LEAST or not is_replaced or not adding:
            continue
        yield StepFinding(
            kind="left in groups",
            heading=f"{each.name} goes on holding {len(left):,} parameters that others replaced",
            frame=adding[0][0],
            paragraph=(
                f"It held {each.steps[0].fact.held:,} parameters at its first step and"
                f" {len(last):,} at its last. {len(left):,} of these had a gradient before and have"
                " none any more: no backward pass leads to them. Each stays in param_groups with"
                " its state, so memory grows with each replacement. Take the old ones out of"
                " param_groups and optimizer.state when new ones are added, or make a new"
                " optimizer."
            ),
        )


def growing_network(run: RunSteps) -> StepFinding | None:
    """New parameters that an optimizer is given time and again; None: none. It may be meant.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for each in run.optimizers:
        made = [frame for frame, is_made in _adding(run.trace) if is_made]
        if not made or not _is_given_more(each):
            continue
        first, last = each.steps[0].fact.held, each.steps[-1].fact.held
        return StepFinding(
            kind="grows",
            heading=f"{each.name} holds more and more parameters: {first:,}, then {last:,}",
            frame=made[0],
            paragraph=(
                f"New parameters are made again and again, and {_ADDS} gives them to the optimizer,"
                " which keeps all with their state: each step takes more time and memory than the"
                " one before. If the network is to grow, leave it; else make them once, before the"
                " loop."
            ),
        )
    return None


def _is_given_more(each: Stepping) -> bool:
    """Whether an optimizer holds more from time to time, and never less."""
    held = [taken.fact.held for taken in each.steps]
    rises = [after - before for before, after in itertools.pairwise(held)]
    return sum(rise > 0 for rise in rises) >= _LEAST and min(rises) >= 0


def _adding(trace: Trace) -> Iterator[tuple[Frame, bool]]:
    """The lines that call ``add_param_group``, and whether a module is made around them.

    In the same loop, or else in the same function.
    """
    for file in user_files(trace):
        own = {node.name for _, node in nodes_of(trace, file) if isinstance(node, ast.ClassDef)}
        for name, nodes in nodes_by_function(trace, file).items():
            for node in nodes:
                if not isinstance(node, ast.Call) or called_name(node) != _ADDS:
                    continue
                loops = [each for each in nodes if isinstance(each, ast.For | ast.While)]
                within = [list(ast.walk(loop)) for loop in loops]
                around = [inside for inside in within if node in inside]
                beside = around[0] if around else nodes if name != _MODULE else []
                is_made = any(isinstance(each, ast.Call) and _makes(each, own) for each in beside)
                yield line_at(trace, file, node.lineno, name), is_made


def _makes(call: ast.Call, own: set[str]) -> bool:
    """Whether it makes a module of torch.nn, a parameter, or something of a class of the file."""
    name, written = called_name(call), ast.unparse(call.func)
    is_of_torch = written.startswith(("nn.", "torch.nn.")) and name[:1].isupper()
    return is_of_torch or name in own or name == "Parameter"
