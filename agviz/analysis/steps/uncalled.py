"""Methods that a statement names and does not call: ``optimizer.zero_grad`` without parentheses.

Note [Named only]
Python takes the method, and lets go of it. Nothing is said where the same text is called in the
same loop, or where the program has a property of that name, whose reading may do something; nor of
functions that nothing which ran is seen to call.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, nodes_of, tree_of, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace

_MEANS: Final = {
    "backward": "no gradient is computed there, and nothing is trained by it",
    "clear": "nothing is taken out, and what it holds becomes more",
    "eval": "what it belongs to stays in training mode, where dropout drops and batch norm goes by"
    " the statistics of each batch, which it also keeps",
    "requires_grad_": "what requires a gradient stays as it was",
    "step": "an optimizer's parameters, or a scheduler's learning rate, stay what they are",
    "train": "what it belongs to stays in the mode in which it is",
    "unscale_": "gradients stay multiplied by the loss scale",
    "update": "what it keeps, as the scale of a GradScaler, stays what it is",
    "zero_": "what it is called of keeps its values",
    "zero_grad": "gradients of earlier steps stay, and each pass adds to them",
}
"""What comes of it, by the method that is not called."""
_FOLLOWING: Final = {
    "zero_grad": frozenset({"kept", "mixed"}),
    "step": frozenset({"never steps"}),
    "eval": frozenset({"no statistics", "on in evaluation"}),
    "train": frozenset({"mode"}),
}
"""Kinds of findings that are its consequence."""
_TRAINS: Final = frozenset({"backward", "step", "unscale_", "zero_grad"})


def uncalled(run: RunSteps, others: Sequence[StepFinding]) -> list[StepFinding]:
    """Others, without what follows from methods that are not called, behind these.

    Args:
        run: of the program.
        others: what else is found in it.
    """
    named = list(_named(run))
    follows = {kind for method, _ in named for kind in _FOLLOWING.get(method, ())}
    return [*(one for _, one in named), *(one for one in others if one.kind not in follows)]


def _named(run: RunSteps) -> Iterator[tuple[str, StepFinding]]:
    """The first statement for each method, with the method. Note [Named only]."""
    trace = run.trace
    seen: set[str] = set()
    for file, function, node in run.statements():
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Attribute):
            continue
        text, method = ast.unparse(node.value), node.value.attr
        if method not in _MEANS or method in seen or method in _properties(trace):
            continue
        if text in _called_beside(tree_of(trace, file), node):
            continue
        seen.add(method)
        yield (
            method,
            StepFinding(
                kind="not called" if method in _TRAINS else "only named",
                heading=f"{text} is named here and not called: its parentheses are missing",
                frame=line_at(trace, file, node.lineno, function),
                paragraph=(
                    f"A statement that only names a method has no effect: {_MEANS[method]}."
                    f" Write {text}()."
                ),
            ),
        )


def _properties(trace: Trace) -> set[str]:
    """Names of functions that run where an attribute is read."""
    return {
        node.name
        for file in user_files(trace)
        for _, node in nodes_of(trace, file)
        if isinstance(node, ast.FunctionDef)
        and any("property" in ast.unparse(one) for one in node.decorator_list)
    }


def _called_beside(tree: ast.Module, statement: ast.Expr) -> set[str]:
    """What is called in the innermost loop or function around a statement, as it is written."""
    around: ast.AST = tree
    for node in ast.walk(tree):  # from outside to inside
        if not isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef):
            continue
        if node.lineno <= statement.lineno <= (node.end_lineno or 0):
            around = node
    return {ast.unparse(node.func) for node in ast.walk(around) if isinstance(node, ast.Call)}
