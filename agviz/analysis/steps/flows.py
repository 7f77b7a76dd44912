"""The logarithm of a determinant that has the wrong sign, in a layer of a flow.

Note [What is stretched]
A layer that multiplies by ``exp(s)`` has the log determinant ``s.sum()``, one that multiplies by
``exp(-s)`` the negative of it. With the wrong sign the density has no bound: to stretch or to
shrink makes the loss smaller for ever. Read from functions that return both, and only where the
program adds what they return to the density of the base.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, elements, line_at, tree_of, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_TAKEN_AWAY: Final = re.compile(r"-=?\s*(?:self\.)?\w*(?:log_?(?:abs_?)?det|ldj|logdet)")
_ADDED: Final = re.compile(r"\+=?\s*(?:self\.)?\w*(?:log_?(?:abs_?)?det|ldj|logdet)")


def determinants(run: RunSteps) -> Iterator[StepFinding]:
    """The first function whose log determinant has the wrong sign. Note [What is stretched]."""
    for file in user_files(run.trace) if run.optimizers else ():
        text = "\n".join(run.trace.source(file))
        if not _ADDED.search(text) or _TAKEN_AWAY.search(text):
            continue
        for function in ast.walk(tree_of(run.trace, file)):
            if not isinstance(function, ast.FunctionDef) or function.name not in run.running:
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Return) or node.value is None:
                    continue
                for each in elements(node.value)[1:]:
                    sign, name = _summed(each)
                    factors = _factors(function, name) if name else set()
                    if factors != {-sign}:
                        continue
                    minus = "-" if sign > 0 else ""
                    yield StepFinding(
                        kind="determinant",
                        heading=f"the log determinant of {function.name} has the wrong sign",
                        frame=line_at(run.trace, file, node.lineno, function.name),
                        paragraph=(
                            f"It multiplies by exp({minus}{name}), whose log determinant is the sum"
                            f" of {minus}{name}, and returns {ast.unparse(each)}, which is added to"
                            " the log density. So a loss of -log_prob has no bound: it falls the"
                            " further the more the layer changes the scale. Turn the sign round"
                            " here."
                        ),
                    )
                    return


def _summed(value: ast.expr) -> tuple[int, str]:
    """The sign and the name of what is summed; no name: it is something else."""
    match value:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            sign, name = _summed(inner)
            return -sign, name
        case ast.Call(func=ast.Attribute(value=inner, attr="sum")):
            match inner:
                case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id=name)):
                    return -1, name
                case ast.Name(id=name):
                    return 1, name
    return 1, ""


def _factors(function: ast.FunctionDef, name: str) -> set[int]:
    """The signs of a name in what exp is taken of and something is multiplied by."""
    found = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult | ast.Div):
            continue
        for side in (node.left, node.right):
            if not isinstance(side, ast.Call) or called_name(side) != "exp":
                continue
            given = side.func.value if isinstance(side.func, ast.Attribute) else None
            of = side.args[0] if side.args else given
            divided = -1 if isinstance(node.op, ast.Div) and side is node.right else 1
            match of:
                case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id=other)) if other == name:
                    found.add(-divided)
                case ast.Name(id=other) if other == name:
                    found.add(divided)
    return found
