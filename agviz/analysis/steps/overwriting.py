"""A part of the loss that a second assignment throws away before anything reads it.

Note [Two values for one name]
``loss = criterion(...)`` and then ``loss = penalty(...)`` in one block, where ``loss +=`` was
meant: both run, nothing between them reads the name, and the second value does not. The graph shows
that the second is a number which leads to the loss, and that nothing made in the first line does.
The first would have trained something: it is computed by a model whose parameters the text names,
or of what a line made that leads to the loss. Where the second is computed of all that the first
is, one may have been written in the place of the other, and nothing is said.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    called_name,
    container_name,
    elements,
    line_at,
    tree_of,
    user_files,
    with_functions,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import NodeRow

_MOST_NODES: Final = 20_000
_LEAST: Final = 3
"""Passes; so many of the last ones are looked at."""
_ASIDE: Final = frozenset({"data", "detach", "item", "no_grad", "tolist"})
_BLOCKS: Final = ("body", "orelse", "finalbody")
_LEAVING: Final = (ast.Break, ast.Continue, ast.Raise, ast.Return)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def overwritten(run: RunSteps) -> Iterator[StepFinding]:
    """Parts of a loss that nothing reads. Note [Two values for one name]."""
    tasks = run.passes[-_LEAST:] if len(run.passes) >= _LEAST else ()
    if any(task.nodes > _MOST_NODES for task in tasks) or not tasks:
        return
    passes = [run.trace.nodes(task.id) for task in tasks]
    for file in user_files(run.trace):
        tree = tree_of(run.trace, file)
        made = [_lines(nodes, file) for nodes in passes]
        for around, node in with_functions(tree):
            function = node.name if isinstance(node, _FUNCTIONS) else around
            if function not in run.running:
                continue
            for first, second in _pairs(node):
                if not all(_is_last(first, second, lines) for lines in made):
                    continue
                if _is_read_elsewhere(tree, first) or not _would_train(run, tree, first, made[-1]):
                    continue
                name = ast.unparse(first.targets[0])
                yield StepFinding(
                    kind="overwritten",
                    heading=f"{name} is given another value before anything has read the first",
                    frame=line_at(run.trace, file, second.lineno, function),
                    paragraph=(
                        f"Line {first.lineno} computes {name}, and this line puts another value in"
                        " its place. Nothing reads the first in between: no node that it made is"
                        " in the graph of the passes that were looked at, so that it trains"
                        f" nothing. If both are meant, write {name} = {name} + ... here; if only"
                        f" the second is, delete line {first.lineno}."
                    ),
                )
                return


def _lines(nodes: Sequence[NodeRow], file: str) -> dict[int, bool]:
    """The lines of a file that led to nodes, and whether one of these made a single number."""
    found: dict[int, bool] = {}
    for node in nodes:
        if node.sequence_nr is None:  # of a leaf it may be any line that used it
            continue
        is_number = (node.input_shapes or (None,))[0] == ()
        for frame in node.stack:
            if frame.file == file:
                found[frame.line] = found.get(frame.line, False) or is_number
    return found


def _pairs(node: ast.AST) -> Iterator[tuple[ast.Assign, ast.Assign]]:
    """Assignments of one block to one name, none of which reads what the first gave."""
    for block in _BLOCKS:
        statements = getattr(node, block, None)
        if not isinstance(statements, list):
            continue
        for number, first in enumerate(statements):
            if not isinstance(first, ast.Assign) or len(first.targets) != 1:
                continue
            target = first.targets[0]
            second = (
                _next_value(target.id, statements[number + 1 :])
                if isinstance(target, ast.Name)
                else None
            )
            if second is not None and _names(first.value) - _names(second.value):
                yield first, second


def _next_value(name: str, statements: Sequence[ast.stmt]) -> ast.Assign | None:
    """The assignment that gives a name another value; None: something may read it before."""
    for each in statements:
        if isinstance(each, _LEAVING):
            return None
        uses = [node for node in ast.walk(each) if isinstance(node, ast.Name) and node.id == name]
        if not uses:
            continue
        is_plain = isinstance(each, ast.Assign) and len(uses) == 1 and each.targets == uses
        return each if isinstance(each, ast.Assign) and is_plain else None
    return None


def _names(value: ast.expr) -> set[str]:
    """Variables and attributes of ``self`` that an expression reads, but for what it binds."""
    bound = {
        node.id
        for node in ast.walk(value)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    called = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    return {
        ast.unparse(node)
        for node in ast.walk(value)
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in called
    } - bound


def _is_last(first: ast.Assign, second: ast.Assign, lines: dict[int, bool]) -> bool:
    """Whether the second leads to the loss as a number, and nothing of the first does."""
    one, other = (range(each.lineno, (each.end_lineno or 0) + 1) for each in (first, second))
    return any(lines.get(line) for line in other) and not any(line in lines for line in one)


def _is_read_elsewhere(tree: ast.Module, first: ast.Assign) -> bool:
    """Whether a function in the file may read the name without having bound it."""
    (target,) = first.targets
    for scope in ast.walk(tree):
        if not isinstance(scope, (*_FUNCTIONS, ast.Lambda)):
            continue
        uses = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.Name) and node.id == container_name(target)
        ]
        own = {each.arg for each in ast.walk(scope.args) if isinstance(each, ast.arg)}
        is_bound = any(isinstance(node.ctx, ast.Store) for node in uses)
        if uses and not is_bound and container_name(target) not in own:
            return True
    return False


def _would_train(
    run: RunSteps, tree: ast.Module, first: ast.Assign, lines: dict[int, bool]
) -> bool:
    """Whether the first value leads back to parameters, as far as text and graph show."""
    inside = [*ast.walk(first.value)]
    if any(getattr(node, "attr", "") in _ASIDE for node in inside):
        return False
    calls = [node for node in inside if isinstance(node, ast.Call)]
    if not calls:
        return False
    models = {
        container_name(node.func.value)
        for file in user_files(run.trace)
        for node in ast.walk(tree_of(run.trace, file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and called_name(node) == "parameters"
    }
    if any(called_name(call) in models for call in calls):
        return called_name(calls[0]) not in models  # a pass through a model may be meant as such
    names = _names(first.value)
    return any(
        isinstance(node, ast.Assign)
        and node.lineno in lines
        and node.lineno < first.lineno
        and any(ast.unparse(to) in names for target in node.targets for to in elements(target))
        for node in ast.walk(tree)
    )
