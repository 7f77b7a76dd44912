"""Weights that are moved up the gradient to look at it there, and never back.

Note [Climbing]
Sharpness-aware steps write to the parameters between two backward passes: up the gradient of the
first, and back before the step on that of the second. Where a line of the program adds something
worked out of ``.grad`` to what the optimizer holds, parameters were seen to be written between its
steps, two passes come before each, and nothing in the file takes away, copies back or loads, each
step keeps the climb.
"""

from __future__ import annotations

import ast
import itertools
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_of
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping

_LEAST: Final = 3
"""Steps."""
_MOST: Final = 16
_BACK: Final = frozenset(
    {"copy_", "load_state_dict", "set_", "sub_", "swap_tensors", "_foreach_sub_"}
)
_FIGURES: Final = re.compile(r"\.(item|max|mean|sum)\b|\.norm\([^()]*\)( \*\* 2)?$")
"""What is worked out of a gradient to be shown, or to bound it."""


def climbing(run: RunSteps) -> Iterator[StepFinding]:
    """A climb that is kept. Note [Climbing]."""
    for each in run.optimizers:
        pairs = list(itertools.islice(itertools.pairwise(each.steps), _MOST))
        is_twice = len(pairs) >= _LEAST and all(
            len(run.passes_between(last, taken).ids) == 2 for last, taken in pairs
        )
        is_written = sum(any(row.net for row in taken.sample) for taken in each.steps) >= _LEAST
        found = _climb(run, each) if is_twice and is_written else None
        if found is None or each.stepped is None:
            continue
        function, line = found
        yield StepFinding(
            kind="not taken back",
            heading=f"weights are moved up the gradient before steps of {each.name}, never back",
            frame=line_at(run.trace, each.stepped.file, line, function),
            paragraph=(
                f"Two backward passes come before each step of {each.name}. Between them this line"
                " adds something worked out of the gradient, as a sharpness-aware step does to look"
                " at the gradient there, and no line takes it away again: each step keeps a climb"
                " of the loss. Keep what was added, and subtract it before the optimizer steps."
            ),
        )
        return


def _climb(run: RunSteps, each: Stepping) -> tuple[str, int] | None:
    """The function and line that adds something of a gradient; None where a file takes any back."""
    nodes = nodes_of(run.trace, each.stepped.file) if each.stepped else ()
    of_gradients = {
        ast.unparse(target)
        for _, node in nodes
        if isinstance(node, ast.Assign) and ".grad" in ast.unparse(node.value)
        for target in node.targets
    }
    climbs: list[tuple[str, int]] = []
    for function, node in nodes:
        match node:
            case ast.Call() if called_name(node) in _BACK:
                return None
            case ast.AugAssign(op=ast.Sub()):
                return None
            case ast.Attribute(attr="data", ctx=ast.Store()):
                return None
            case ast.Call(func=ast.Attribute(attr="add_", value=to), args=[value, *_]):
                if node.keywords or isinstance(value, ast.UnaryOp):
                    return None
            case ast.AugAssign(op=ast.Add(), target=to, value=value):
                pass
            case _:
                continue
        said = ast.unparse(value)
        if "grad" in ast.unparse(to) or _FIGURES.search(said):
            continue
        if (".grad" in said or said in of_gradients) and function in run.running:
            climbs.append((function, node.lineno))
    return climbs[0] if len(climbs) == 1 else None
