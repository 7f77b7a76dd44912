"""A custom Function whose backward does not look at the gradient that it is given.

Of a Function that gives the loss itself, that gradient is 1, and may be left out: nothing is said
of one that gives a single number.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import line_at, tree_of, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_SUFFIX: Final = "Backward"
_MOST_NODES: Final = 20_000


class _Returned(NamedTuple):
    """What the backward of a Function gives back."""

    frame: Frame
    text: str
    given: str
    """The names of the gradients that it gets."""


def ungiven(run: RunSteps) -> Iterator[StepFinding]:
    """Functions that ran in the last pass, and whose backward reads none of its gradients."""
    if not run.passes or run.passes[-1].nodes > _MOST_NODES:
        return
    trace = run.trace
    ran = {
        node.name.removesuffix(_SUFFIX)
        for node in trace.nodes(run.passes[-1].id)
        if node.name.endswith(_SUFFIX) and any(node.input_shapes or ())
    }
    if not ran:
        return
    for file in user_files(trace):
        for node in ast.walk(tree_of(trace, file)):
            if not isinstance(node, ast.ClassDef) or node.name not in ran:
                continue
            found = _returned(trace, node, file)
            if found is None:
                continue
            yield StepFinding(
                kind="gradient unused",
                heading=f"the backward of {node.name} does not use the gradient that it is given",
                frame=found.frame,
                paragraph=(
                    f"It returns {found.text}, whatever {found.given} is: what comes behind"
                    f" {node.name}, its sign, its size and each element's part in the loss, does"
                    " not reach what comes before it. By the chain rule each derivative is"
                    f" multiplied by {found.given}. agviz check compares it with a numerical"
                    " derivative."
                ),
            )
            return


def _like(node: ast.AST) -> Sequence[ast.expr]:
    """What of a node is only asked for its shape, its type or its place."""
    match node:
        case ast.Attribute(value=of, attr="device" | "dtype" | "ndim" | "shape"):
            return [of]
        case ast.Call(func=ast.Attribute(value=of, attr="dim" | "numel" | "size")):
            return [of]
        case ast.Call(func=ast.Attribute(attr=name), args=args) if name.endswith(("_as", "_like")):
            return args[:1]
    return []


def _returned(trace: Trace, function: ast.ClassDef, file: str) -> _Returned | None:
    """What a backward that reads no gradient returns; None: it reads one, or may."""
    for node in function.body:
        if not isinstance(node, ast.FunctionDef) or node.name != "backward":
            continue
        gradients = [each.arg for each in node.args.args[1:]]
        of_shape = {id(name) for each in ast.walk(node) for name in _like(each)}
        read = {
            each.id
            for each in ast.walk(node)
            if isinstance(each, ast.Name)
            and isinstance(each.ctx, ast.Load)
            and id(each) not in of_shape
        }
        returns = [each for each in ast.walk(node) if isinstance(each, ast.Return)]
        if not gradients or node.args.vararg or read.intersection(gradients) or len(returns) != 1:
            return None
        value = returns[0].value
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        computed = [each for each in values if each and not isinstance(each, ast.Constant)]
        if len(computed) != 1:
            return None
        line = returns[0].lineno
        frame = line_at(trace, file, line, node.name)
        return _Returned(frame, ast.unparse(computed[0]), " and ".join(gradients))
    return None
