"""Hooks that give a gradient back in another order: each number gets what is another one's.

Note [Another order]
A hook may scale a gradient, clip it or leave parts out, and the sum of a gradient with its mirror
image keeps what is symmetric so. Nothing but the same numbers in another order is the gradient of
other elements: torch compares shapes only. What a hook returns is read from its text; that it ran,
and gave another tensor back, is in the trace.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, tree_of, user_files
from agviz.analysis.steps.binding import LAMBDA, hook_sites
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.steps.binding import HookSite
    from agviz.analysis.steps.run import RunSteps

_REORDERING: Final = frozenset(
    {"flip", "fliplr", "flipud", "roll", "rot90", "swapaxes", "swapdims", "t", "transpose"}
)
_REORDERED: Final = frozenset({"H", "T", "mH", "mT"})
"""Attributes that do the same."""
_KEEPING: Final = frozenset({"clone", "contiguous", "detach", "to"})
_SPLITTING: Final = frozenset({"chunk", "split", "tensor_split", "unbind"})
_JOINING: Final = frozenset({"cat", "concat", "concatenate", "stack"})
_OF_TENSORS: Final = frozenset({"register_hook", "register_post_accumulate_grad_hook"})


def reordered(run: RunSteps) -> Iterator[StepFinding]:
    """Hooks whose text returns their gradient in another order, and that changed gradients."""
    ran = {
        (call.kind, call.name.rpartition(".")[2]) for call in run.trace.hook_times() if call.changed
    }
    if not ran:
        return
    sites = [
        site
        for file in user_files(run.trace)
        for site in hook_sites(run, file)
        if site.method in _OF_TENSORS
    ]
    for site in sites:
        kinds = [one for one in ran if site.may_be(*one)]
        others = [
            each for each in sites if each is not site and any(each.may_be(*one) for one in kinds)
        ]
        hook = _hook(run, site) if kinds and not others else None
        at = None if hook is None else _reorders(hook)
        if at is not None:
            yield _finding(run, site, at)
            return


def _finding(run: RunSteps, site: HookSite, at: ast.expr) -> StepFinding:
    given = site.call.args[0]
    name = LAMBDA if isinstance(given, ast.Lambda) else ast.unparse(given)
    inside = name.rpartition(".")[2]
    of = ast.unparse(site.call.func).rpartition(".")[0]
    return StepFinding(
        kind="reordered",
        heading=f"the hook {name} gives the gradient back in another order",
        frame=line_at(run.trace, site.file, at.lineno, inside),
        paragraph=(
            f"It is registered on {of} (line {site.call.lineno}), and what it returns is the same"
            f" numbers in other places: {ast.unparse(at)}. So each element of {of}, and all before"
            " it, gets the gradient of another element; torch compares shapes only. A gradient has"
            " the order of its tensor, whatever became of that later: return it as it came."
        ),
    )


def _hook(run: RunSteps, site: HookSite) -> ast.Lambda | ast.FunctionDef | None:
    """What a call registers, where it is written in the same file, once."""
    given = site.call.args[0]
    if isinstance(given, ast.Lambda):
        return given
    if not isinstance(given, ast.Name | ast.Attribute):
        return None
    name = ast.unparse(given).rpartition(".")[2]
    found = [
        node
        for node in ast.walk(tree_of(run.trace, site.file))
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found[0] if len(found) == 1 else None


def _reorders(hook: ast.Lambda | ast.FunctionDef) -> ast.expr | None:
    """What a hook returns, where that is its gradient in another order whatever happens."""
    arguments = [each.arg for each in (*hook.args.posonlyargs, *hook.args.args)]
    arguments = arguments[1:] if arguments[:1] == ["self"] else arguments
    if not arguments:
        return None
    if isinstance(hook, ast.Lambda):
        returned = [hook.body]
        parts: Mapping[str, Sequence[str]] = {}
    else:
        inside = [*ast.walk(hook)]
        returned = [each.value for each in inside if isinstance(each, ast.Return) and each.value]
        is_plain = all(
            isinstance(each, ast.Assign | ast.Return | ast.Expr) for each in hook.body
        ) and not any(isinstance(each, ast.AugAssign) for each in inside)
        if not is_plain:
            return None
        parts = _parts(hook, arguments[0])
    if len(returned) != 1:
        return None
    return returned[0] if _order_of(returned[0], arguments[0], parts) else None


def _parts(hook: ast.FunctionDef, gradient: str) -> dict[str, list[str]]:
    """Names that a hook gives to consecutive parts of its gradient, all of them, in their order."""
    found: dict[str, list[str]] = {}
    for node in hook.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Call() as call):
                of = _root_of(call)
                is_part = _function(call) in _SPLITTING and of == gradient
                if is_part and all(isinstance(each, ast.Name) for each in names):
                    own = [ast.unparse(each) for each in names]
                    found |= dict.fromkeys(own, own)
    return found


def _order_of(value: ast.expr, gradient: str, parts: Mapping[str, Sequence[str]]) -> bool:
    """Whether an expression is the gradient in another order, and nothing else."""
    changes: list[str] = []
    while True:
        match value:
            case ast.Name(id=name):
                return name == gradient and len(changes) == len(set(changes)) > 0
            case ast.Attribute(value=of, attr=attribute) if attribute in _REORDERED:
                changes.append(attribute)
                value = of
            case ast.Subscript(value=of, slice=index):
                if not _permutes(index):
                    return False
                changes.append(ast.unparse(index))
                value = of
            case ast.Call() if _function(value) in _JOINING:
                return not changes and _joins(value, parts)
            case ast.Call() if _function(value) in _REORDERING | _KEEPING:
                if _function(value) in _REORDERING:
                    changes.append(_function(value) + ", ".join(map(ast.unparse, value.args[-2:])))
                inner = _argument(value)
                if inner is None:
                    return False
                value = inner
            case _:
                return False


def _permutes(index: ast.expr) -> bool:
    """Whether an index is numbers in another order: ``[1, 0]``, ``:, [2, 0, 1]``, ``randperm``."""
    chosen = [*index.elts] if isinstance(index, ast.Tuple) else [index]
    found = 0
    for each in chosen:
        match each:
            case ast.Slice(lower=None, upper=None, step=None):
                continue
            case ast.Constant(value=value) if value is Ellipsis:
                continue
            case ast.List(elts=elements) if all(isinstance(e, ast.Constant) for e in elements):
                numbers = [e.value for e in elements if isinstance(e, ast.Constant)]
                if sorted(map(str, numbers)) != sorted(map(str, range(len(numbers)))):
                    return False
                found += numbers != [*range(len(numbers))]
            case ast.Call() if _function(each) == "randperm":
                found += 1
            case _:
                return False
    return found == 1


def _joins(call: ast.Call, parts: Mapping[str, Sequence[str]]) -> bool:
    """Whether a call joins all parts of the gradient in another order than they had."""
    if not call.args or not isinstance(call.args[0], ast.List | ast.Tuple):
        return False
    names = [ast.unparse(each) for each in call.args[0].elts]
    own = [*parts.get(names[0], ())] if names else []
    return names != own and sorted(names) == sorted(own)


def _function(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _argument(call: ast.Call) -> ast.expr | None:
    """What a method is called on, or a function of torch first given."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(of, ast.Name) and of.id == "torch":
        return call.args[0] if call.args else None
    return of


def _root_of(call: ast.Call) -> str:
    of = _argument(call)
    return of.id if isinstance(of, ast.Name) else ""
