"""Two names for one model, where the program takes them for two.

Note [Two names]
``teacher = student`` gives a second name, and ``copy.copy(student)`` a second module with the very
same parameters. Both are told by the text, of names that are given once: a shallow copy that is
called, or a plain second name where both are called in one function, and what one of them gives is
cut off from the gradient there, as a teacher's is.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    called_name,
    differentiated,
    elements,
    line_at,
    nodes_of,
    user_files,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps

_CUT: Final = ("detach", "no_grad", "inference_mode")
_COPY: Final = frozenset({"copy", "copy.copy"})


class _Alias(NamedTuple):
    node: ast.Assign
    function: str
    name: str
    of: str
    is_copy: bool


def aliases(run: RunSteps) -> Iterator[StepFinding]:
    """The first model that has two names. Note [Two names]."""
    for file in user_files(run.trace) if run.optimizers else ():
        nodes = nodes_of(run.trace, file)
        aliases = [each for each in _assigned(nodes) if each.function in run.running]
        calls = _calls(nodes) if aliases else ()
        for alias in aliases:
            if not _are_taken_for_two(nodes, calls, alias):
                continue
            how = f"copy.copy({alias.of}) copies the module, and none of its parameters"
            if not alias.is_copy:
                how = "An assignment gives a second name to one and the same module"
            yield StepFinding(
                kind="one model",
                heading=f"{alias.name} and {alias.of} have the same weights",
                frame=line_at(run.trace, file, alias.node.lineno, alias.function),
                paragraph=(
                    f"{how}: {alias.name} moves with each step of what trains {alias.of}. What is"
                    " to stay behind, as a teacher or a target network, never does, and a loss"
                    " that holds one against the other compares a model with itself. Write"
                    f" {alias.name} = copy.deepcopy({alias.of})."
                ),
            )
            return


def _assigned(nodes: Sequence[tuple[str, ast.AST]]) -> Iterator[_Alias]:
    """Names that are given the value of another one, or a shallow copy of it, and nothing else."""
    values: dict[str, list[_Alias | None]] = {}
    for function, node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
                name, alias = ast.unparse(target), None
                match value:
                    case ast.Name() | ast.Attribute():
                        alias = _Alias(node, function, name, ast.unparse(value), False)
                    case ast.Call(args=[ast.Name() | ast.Attribute() as of], keywords=[]) if (
                        ast.unparse(value.func) in _COPY
                    ):
                        alias = _Alias(node, function, name, ast.unparse(of), True)
                values.setdefault(name, []).append(alias)
    for given in values.values():
        if len(given) == 1 and given[0] is not None:
            yield given[0]


def _calls(nodes: Sequence[tuple[str, ast.AST]]) -> Sequence[tuple[str, str]]:
    """What is called, as it is written, each with its function."""
    return [
        (function, ast.unparse(node.func)) for function, node in nodes if isinstance(node, ast.Call)
    ]


def _are_taken_for_two(
    nodes: Sequence[tuple[str, ast.AST]], calls: Sequence[tuple[str, str]], alias: _Alias
) -> bool:
    """Whether both are called as models are, one of them cut off, and both for one loss."""
    both = {alias.name, alias.of}
    is_trained = not {f"{name}.parameters" for name in both}.isdisjoint(name for _, name in calls)
    if not is_trained or alias.name not in {name for _, name in calls}:
        return False
    if alias.is_copy:
        return True
    functions = {function for function, name in calls if name in both}
    return any(
        len(_into_loss([node for where, node in nodes if where == function], both)) == len(both)
        for function in functions
    )


def _into_loss(nodes: Sequence[ast.AST], models: set[str]) -> set[str]:
    """Which models a loss of a function calls; empty where no call is cut off, or all are."""
    assigned = [node for node in nodes if isinstance(node, ast.Assign)]
    wanted = differentiated(nodes)
    before, used = -1, list[ast.Assign]()
    while before != len(wanted):
        before = len(wanted)
        used = [
            each
            for each in assigned
            if not wanted.isdisjoint(ast.unparse(t) for one in each.targets for t in elements(one))
        ]
        wanted |= {
            name.id for each in used for name in ast.walk(each.value) if isinstance(name, ast.Name)
        }
    cut = {id(part) for node in nodes if _cuts(node) for part in ast.walk(node)}
    found = {
        (ast.unparse(call.func), id(call) in cut)
        for each in used
        for call in ast.walk(each.value)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in models
    }
    return {name for name, _ in found} if len({is_cut for _, is_cut in found}) > 1 else set()


def _cuts(node: ast.AST) -> bool:
    """Whether it is a block, or a call, that leaves what is in it without a gradient."""
    if isinstance(node, ast.With):
        return any(word in ast.unparse(each) for each in node.items for word in _CUT)
    return isinstance(node, ast.Call) and called_name(node) == "detach"
