"""A custom Function whose backward does not use the gradient that it is given, for some input.

Of a Function that gives the loss itself, that gradient is 1, and may be left out: nothing is said
of one that gives a single number.

Note [Saved on the way]
``create_graph`` differentiates ``backward`` by what it was given and by inputs and outputs that the
forward saved. What the forward has computed on the way and saved is a constant there: the second
derivative lacks all that leads through it.
"""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    called_name,
    elements,
    line_at,
    own_name,
    targets_of,
    tree_of,
    user_files,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_SUFFIX: Final = "Backward"
_MOST_NODES: Final = 20_000
_MOST_TASKS: Final = 64
_LAST: Final = 4


class _Returned(NamedTuple):
    """What the backward of a Function gives back."""

    frame: Frame
    text: str
    given: str
    """The names of the gradients that it gets."""
    by: str
    """The input that it is the derivative by; empty: the only one, or not known."""


def ungiven(run: RunSteps) -> Iterator[StepFinding]:
    """Functions that ran in the last pass, whose backward gives back what has no gradient in it."""
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
            by = f" for {found.by}" if found.by else ""
            yield StepFinding(
                kind="gradient unused",
                heading=(
                    f"the backward of {node.name} does not use the gradient that it is given{by}"
                ),
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


def saved_on_the_way(run: RunSteps) -> Iterator[StepFinding]:
    """Functions whose second derivative lacks what they saved. Note [Saved on the way]."""
    tasks = run.trace.graph_tasks
    created = [task for task in itertools.islice(tasks, _MOST_TASKS) if task.create_graph]
    names = {
        node.name.removesuffix(_SUFFIX)
        for task in created[-_LAST:]
        if task.nodes <= _MOST_NODES
        for node in run.trace.nodes(task.id)
        if node.name.endswith(_SUFFIX)
    }
    for file in user_files(run.trace) if names else ():
        for owner in ast.walk(tree_of(run.trace, file)):
            if not isinstance(owner, ast.ClassDef) or owner.name not in names:
                continue
            own = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
            forward, backward = own.get("forward"), own.get("backward")
            if (
                forward is None
                or backward is None
                or "once_differentiable"
                in {each.id for each in backward.decorator_list if isinstance(each, ast.Name)}
            ):
                continue
            found = _on_the_way(forward)
            if found is None:
                continue
            yield StepFinding(
                kind="saved on the way",
                heading=f"the second derivative of {owner.name} lacks what {found[0]} depends on",
                frame=line_at(run.trace, file, found[1], forward.name),
                paragraph=(
                    f"grad(create_graph=True) differentiates its backward. {found[0]} was computed"
                    " in forward, where no graph is made, and is a constant there: what the second"
                    " derivative has by way of it is missing, with no error. Save the inputs, and"
                    f" compute {found[0]} of them in backward; torch.autograd.gradgradcheck shows"
                    " whether that is right."
                ),
            )
            return


def _on_the_way(forward: ast.FunctionDef) -> tuple[str, int] | None:
    """What a forward computes of its arguments, saves, and does not return, with its line."""
    arguments = {each.arg for each in forward.args.args}
    computed = {
        ast.unparse(node.targets[0])
        for node in ast.walk(forward)
        if isinstance(node, ast.Assign)
        and _read(node.value) & arguments
        and any(isinstance(each, ast.Call | ast.BinOp) for each in ast.walk(node.value))
        and not any(isinstance(each, ast.Compare) for each in ast.walk(node.value))
    }
    gives = {
        ast.unparse(each)
        for node in ast.walk(forward)
        if isinstance(node, ast.Return) and node.value is not None
        for each in elements(node.value)
    }
    for node in ast.walk(forward):
        if isinstance(node, ast.Call) and called_name(node) == "save_for_backward":
            for each in map(ast.unparse, node.args):
                if each in computed - arguments - gives:
                    return each, node.lineno
    return None


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
    """What a backward returns without a gradient in it; None: each has one, or may have."""
    own = {node.name: node for node in function.body if isinstance(node, ast.FunctionDef)}
    backward, forward = own.get("backward"), own.get("forward")
    if backward is None or forward is None:
        return None
    given = backward.args
    gradients = [each.arg for each in given.args[1:]] + ([given.vararg.arg] if given.vararg else [])
    returns = [each for each in ast.walk(backward) if isinstance(each, ast.Return)]
    if not gradients or len(returns) != 1 or returns[0].value is None:
        return None
    made = _made_of(backward)
    of_what = set(gradients)
    while more := {name for name, of in made.items() if of & of_what} - of_what:
        of_what |= more
    lacking = [
        (place, value)
        for place, value in enumerate(elements(returns[0].value))
        if not (isinstance(value, ast.Constant) or _read(value) & of_what)
        and not _is_blank(backward, value)
    ]
    if len(lacking) != 1:
        return None
    ((place, value),) = lacking
    names = [each.arg for each in forward.args.args[1:]]
    by = names[place] if place < len(names) and len(names) > 1 else ""
    last = _last_of(backward, value)
    frame = line_at(trace, file, (last or returns[0]).lineno, backward.name)
    written = ast.unparse(value if last is None else last.value)
    return _Returned(frame, written, " and ".join(gradients), by)


def _read(node: ast.AST) -> set[str]:
    """Names that are read, and not only for a shape, a type or a place."""
    of_shape = {id(name) for each in ast.walk(node) for name in _like(each)}
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and id(each) not in of_shape
    }


def _made_of(function: ast.FunctionDef) -> dict[str, set[str]]:
    """By name, the names that its values may be made of: those of all statements that write it.

    What a statement calls a method of, or hands over, may be written to.
    """
    found: dict[str, set[str]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(value=value) | ast.AugAssign(value=value):
                written = {name for each in targets_of(node) for name in _read(each)}
                of = _read(value)
            case ast.AnnAssign() | ast.Expr() | ast.NamedExpr() | ast.For() | ast.withitem():
                written = of = _read(node)
            case _:
                continue
        for name in written:
            found.setdefault(name, set()).update(of)
    return found


def _last_of(function: ast.FunctionDef, value: ast.expr) -> ast.Assign | None:
    """The last statement that gives a value to a name; None: it is no name, or is given none."""
    name = own_name(value)
    given = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and name in map(own_name, node.targets)
    ]
    return max(given, key=lambda node: node.lineno, default=None) if name else None


def _is_blank(function: ast.FunctionDef, value: ast.expr) -> bool:
    """Whether nothing, or zeros, are meant to be given back."""
    given = [value, *(last.value for last in [_last_of(function, value)] if last is not None)]
    return any(
        (isinstance(each, ast.Constant) and not each.value)
        or (isinstance(node, ast.Call) and "zero" in called_name(node))
        for each in given
        for node in ast.walk(each)
    )
