"""Tensors that the program computes and never reads, as a mask that no score was given.

Note [Left over]
What is left over is no fault, so it is said and not judged, where nothing else was found. It is
said of what a function that ran computes by torch, or is given as an argument of ``forward`` that
has no default, and of which no line of that function speaks again: of the whole file, where it is
made outside of functions.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    OF_TORCH,
    called_name,
    line_at,
    tree_of,
    user_files,
    with_functions,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace

_NO_TENSORS: Final = frozenset(
    {"Generator", "compile", "device", "get_default_dtype", "is_grad_enabled", "load", "save"}
    | {"manual_seed", "no_grad", "enable_grad", "set_grad_enabled", "set_num_threads", "Size"}
)
_LOOKING: Final = ".item()"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def unused_name(run: RunSteps) -> StepFinding | None:
    """The first tensor that nothing reads; None: there is none. Note [Left over].

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not run.optimizers:
        return None
    frames = run.trace.frames()
    for file in user_files(run.trace):
        tree = tree_of(run.trace, file)
        lines = {frame.line for frame in frames if frame.file == file}
        functions = [
            node
            for _, node in with_functions(tree)
            if isinstance(node, _Function) and _has_run(node, lines)
        ]
        for function in functions:
            name = _ignored_argument(function)
            if name:
                said = f"forward is given {name}, and no line of it reads that"
                return _found(run.trace, file, function.name, function, said)
        for within, body in (("<module>", tree), *((node.name, node) for node in functions)):
            for name, node in _left_over(body):
                said = f"{name} is computed, and nothing reads it"
                return _found(run.trace, file, within, node, said)
    return None


def _has_run(function: _Function, lines: Collection[int]) -> bool:
    last = function.end_lineno or function.lineno
    return any(function.lineno <= line <= last for line in lines) and any(
        statement.lineno in lines for statement in _statements(function)
    )


def _ignored_argument(function: _Function) -> str:
    """The first argument of a module's forward that is not read; empty: all are."""
    given = function.args
    if function.name != "forward" or given.vararg or given.kwarg or len(given.args) < 2:
        return ""
    if function.decorator_list:  # of an autograd.Function: its backward may be what it is for
        return ""
    needed = given.args[1 : len(given.args) - len(given.defaults)]
    read = _read(function)
    return next((a.arg for a in needed if a.arg not in read and not a.arg.startswith("_")), "")


def _left_over(scope: ast.Module | _Function) -> Iterator[tuple[str, ast.stmt]]:
    """Names of a function, or of a file, that are given a tensor and not read."""
    read = _read(scope)
    for node in _statements(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if not (name in read or name.startswith("_")) and _is_of_torch(value):
                    yield name, node


def _read(scope: ast.AST) -> set[str]:
    """Names that are read, written to, deleted, or declared to be another function's."""
    found: set[str] = set()
    for node in ast.walk(scope):
        match node:
            case ast.Name(id=name, ctx=ast.Load() | ast.Del()):
                found.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found.update(names)
    return found


def _statements(body: ast.Module | _Function) -> Iterator[ast.stmt]:
    """Those of a function or a file, without those of what is defined in it."""
    waiting: list[ast.AST] = [body]
    while waiting:
        node = waiting.pop(0)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _Function | ast.ClassDef | ast.Lambda):
                continue
            if isinstance(child, ast.stmt):
                yield child
            waiting.append(child)


def _is_of_torch(value: ast.expr) -> bool:
    """Whether an expression gives a tensor, as far as its text shows, and not only to be shown."""
    if _LOOKING in ast.unparse(value):
        return False
    match value:
        case ast.Call(func=ast.Attribute(value=owner)) if ast.unparse(owner) in OF_TORCH:
            return called_name(value) not in _NO_TENSORS
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Compare(left=inner):
            return _is_of_torch(inner)
        case ast.BinOp(left=left, right=right):
            return _is_of_torch(left) or _is_of_torch(right)
        case ast.Subscript(value=inner):
            return _is_of_torch(inner)
    return False


def _found(trace: Trace, file: str, function: str, node: ast.stmt, heading: str) -> StepFinding:
    return StepFinding(
        kind="unused name",
        heading=heading,
        frame=line_at(trace, file, node.lineno, function),
        paragraph=(
            "If it was to have a part in the loss, as a mask, a weight, a label or the action that"
            " was taken, it has none. If it is only left over, all is well: nothing else was found."
        ),
    )
