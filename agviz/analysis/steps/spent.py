"""Iterators of parameters that something has gone through before an optimizer is given them.

Note [Spent]
What ``parameters()``, ``filter`` or a generator gives can be gone through once: an optimizer, or
one of its groups, that is given it after something else has counted or printed it holds nothing of
it, and says so only where it holds nothing at all. The text shows who was first; it is believed
where parameters get gradients that no optimizer holds.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from agviz.analysis.code_search import called_name, line_at, nodes_by_function
from agviz.analysis.steps.finding import StepFinding, parameters
from agviz.analysis.steps.source_calls import NOT_TAKING, is_iterator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame


def spent(run: RunSteps) -> StepFinding | None:
    """What an optimizer does not hold because it was given it last. Note [Spent]."""
    names = [row.name for row in run.unheld if row.name]
    for each in run.optimizers if names else ():
        if each.made is None:
            continue
        functions = nodes_by_function(run.trace, each.made.file)
        makers = [node for nodes in functions.values() for node in nodes]
        for function, nodes in functions.items():
            made = each.made.line if function == each.made.function else 0
            for name in _iterators(nodes, makers) if function in run.running else ():
                first = _first_taken(nodes, name, made)
                if first is not None:
                    line = line_at(run.trace, each.made.file, first, function)
                    return _finding(each, name, line, names)
    return None


def _finding(each: Stepping, name: str, first: Frame, names: Sequence[str]) -> StepFinding:
    made = "" if each.made is None else f", made in line {each.made.line},"
    return StepFinding(
        kind="not held",
        heading=f"{name} was gone through before {each.name} got it: it holds none of it",
        frame=first,
        paragraph=(
            f"{name} is an iterator, as parameters() and generators give, and can be gone through"
            f" once: this line has done that, and {each.name}{made} found nothing more."
            f" {parameters(names)} get gradients in pass after pass, and no step moves them. Make"
            f" {name} a list."
        ),
    )


def _iterators(nodes: Sequence[ast.AST], others: Sequence[ast.AST]) -> Iterator[str]:
    """Names of a function that stand for iterators, made there or by a function of the file."""
    makers = {node.name: node for node in others if isinstance(node, ast.FunctionDef)}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_iterator(value):
                yield name
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call() as call):
                maker = makers.get(called_name(call))
                given = [] if maker is None else _given_back(maker)
                for target, is_one in zip(targets, given, strict=False):
                    if is_one and isinstance(target, ast.Name):
                        yield target.id


def _given_back(maker: ast.FunctionDef) -> Sequence[bool]:
    """Which of the values that a function returns are iterators."""
    own = {
        target.id
        for node in ast.walk(maker)
        if isinstance(node, ast.Assign) and is_iterator(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    returned = [node.value for node in ast.walk(maker) if isinstance(node, ast.Return)]
    if len(returned) != 1 or not isinstance(returned[0], ast.Tuple):
        return []
    return [isinstance(each, ast.Name) and each.id in own for each in returned[0].elts]


def _first_taken(nodes: Sequence[ast.AST], name: str, made: int) -> int | None:
    """The line that goes through an iterator before one that gives it to an optimizer.

    Args:
        nodes: of a function.
        name: of the iterator.
        made: the line that makes the optimizer there; 0: none does.
    """

    def is_it(node: ast.AST | None) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    taken: list[int] = []
    given: list[int] = []
    for node in nodes:
        match node:
            case ast.Call(args=args, lineno=line) if any(map(is_it, args)):
                if line == made:
                    given.append(line)
                elif called_name(node) not in NOT_TAKING:
                    taken.append(line)
            case ast.For(iter=over, lineno=line) if is_it(over):
                taken.append(line)
            case ast.comprehension(iter=ast.Name(lineno=line) as over) if is_it(over):
                taken.append(line)
            case ast.Dict(keys=keys, values=values, lineno=line):
                named = [key.value for key in keys if isinstance(key, ast.Constant)]
                if "params" in named and any(map(is_it, values)):
                    given.append(line)
    return min(taken) if taken and given and min(taken) < max(given) else None
