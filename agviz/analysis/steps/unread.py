"""Data that requires a gradient which nobody reads: each pass computes it, and adds it up.

Note [Nobody reads it]
Pass after pass leads to a leaf that is no parameter, that no optimizer holds and nothing moves.
That is waste, where the program's text reads no ``.grad`` but to see whether it is there, and
nothing else needs the gradient: no call of ``grad``, no hook, no checkpoint, which may want it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_of, tree_of
from agviz.analysis.steps.finding import StepFinding
from agviz.traces.rows import Frame, visible
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_LEAST: Final = 2
"""Passes after the first."""
_NEEDING: Final = ("checkpoint", "hook", "jacobian", "hessian", "retain_grad", "torch.func")


def unread(run: RunSteps) -> Iterator[StepFinding]:
    """A leaf that is no parameter, and whose gradient no line of the program uses."""
    rows = [
        row
        for row in run.unheld
        if not (row.name or row.attribute or row.is_parameter) and row.passes >= _LEAST
    ]
    if len(rows) != 1 or len(run.passes) != len(run.trace.graph_tasks.outermost):
        return
    task = run.passes[-1].id
    stacks = [run.trace.call_site(task), *(node.stack for node in run.trace.nodes(task))]
    files = dict.fromkeys(at.file for at in map(visible, stacks) if at is not None)
    if any(_is_needed("\n".join(run.trace.source(file))) for file in files):
        return
    made = [line for file in files for line in _requiring(run, file)]
    if len(made) != 1 or any(_reads(tree_of(run.trace, file)) for file in files):
        return
    (row,) = rows
    yield StepFinding(
        kind="unread",
        heading="data requires a gradient that nobody reads",
        frame=made[0],
        paragraph=(
            f"The tensor of shape {write_shape(row.shape)} is no parameter, no optimizer holds it,"
            f" and no line uses its .grad: {row.passes + 1:,} backward passes computed that"
            " gradient, through the first layer as well, and added it to what was there. Leave"
            " requires_grad out for inputs; parameters have it by themselves."
        ),
    )


def _is_needed(text: str) -> bool:
    return any(word in text for word in _NEEDING)


def _requiring(run: RunSteps, file: str) -> Iterator[Frame]:
    """The lines of a file that give a name to what requires a gradient and is no parameter."""
    for function, node in nodes_of(run.trace, file):
        if not isinstance(node, ast.Call):
            continue
        words = {word.arg: word.value for word in node.keywords}
        value = words.get("requires_grad", ast.Constant(None))
        is_set = isinstance(value, ast.Constant) and value.value is True
        is_method = called_name(node) == "requires_grad_" and not (
            node.args and isinstance(node.args[0], ast.Constant) and not node.args[0].value
        )
        if (is_set and called_name(node) != "Parameter") or is_method:
            yield line_at(run.trace, file, node.lineno, function)


def _reads(tree: ast.Module) -> bool:
    """Whether a file reads ``.grad`` of something, but to see whether it is there."""
    compared = {
        id(node.left)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)
    }
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "grad"
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node) != "torch.autograd.grad"
        and id(node) not in compared
        for node in ast.walk(tree)
    )
