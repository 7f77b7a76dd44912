"""Data that a dataset changes in place each time it gives some of it.

Note [A view of the data]
``self.images[index]`` is a view of what the dataset keeps. Written to in place, in ``__getitem__``
or in a method that is given it, the data itself is changed, once in each epoch: noise adds up, and
what was scaled is scaled again. Read from the text.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.code_search import called_name, line_at, tree_of, user_files, written
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.steps.run import RunSteps


class _Item(NamedTuple):
    name: str
    source: str
    """What it is a view of, as it is written."""
    line: int


def items_written(run: RunSteps) -> Iterator[StepFinding]:
    """The first line that changes what a dataset keeps. Note [A view of the data]."""
    for file in user_files(run.trace) if run.passes else ():
        for owner in ast.walk(tree_of(run.trace, file)):
            if not isinstance(owner, ast.ClassDef):
                continue
            methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}
            getting = methods.get("__getitem__")
            if getting is None:
                continue
            for item in _items(getting):
                found = _write(getting, item.name, item.line, methods)
                if found is None:
                    continue
                method, line = found
                yield StepFinding(
                    kind="items written",
                    heading=f"{owner.name} changes its own data whenever it gives some of it",
                    frame=line_at(run.trace, file, line, method),
                    paragraph=(
                        f"{item.name} is a view of {item.source} (line {item.line}), and this line"
                        " writes to it in place: each epoch begins with what the one before has"
                        " left, so that noise, scales and shifts add up. Work on a copy"
                        f" ({item.source}[...].clone()), or out of place (x = x * scale)."
                    ),
                )
                return


def _items(getting: ast.FunctionDef) -> Iterator[_Item]:
    """The variables that ``__getitem__`` gives what one index takes of an attribute."""
    index = getting.args.args[-1].arg
    for node in ast.walk(getting):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Subscript(
                    value=ast.Attribute(value=ast.Name(id="self")) as source, slice=ast.Name(id=by)
                ),
            ) if by == index:
                yield _Item(name, ast.unparse(source), node.lineno)


def _write(
    function: ast.FunctionDef, name: str, after: int, methods: Mapping[str, ast.FunctionDef]
) -> tuple[str, int] | None:
    """The function and the line that write to a variable in place before it is given a value."""
    for node in sorted(_after(function, after), key=lambda each: each.lineno):
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            call = node.value
            if isinstance(call, ast.Call) and (found := _write_in_call(call, name, methods)):
                return found
            return None
        target = written(node)
        if target is not None and target.id == name:
            return function.name, node.lineno
        if isinstance(node, ast.Call) and (found := _write_in_call(node, name, methods)):
            return found
    return None


def _after(function: ast.FunctionDef, line: int) -> Sequence[ast.stmt | ast.expr]:
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Call) and node.lineno > line
    ]


def _write_in_call(
    call: ast.Call, name: str, methods: Mapping[str, ast.FunctionDef]
) -> tuple[str, int] | None:
    method = methods.get(called_name(call))
    given = [ast.unparse(each) for each in call.args]
    if method is None or name not in given or not ast.unparse(call.func).startswith("self."):
        return None
    names = [each.arg for each in method.args.args[1:]]
    place = given.index(name)
    if place >= len(names):
        return None
    return _write(method, names[place], method.lineno, {})
