"""Hooks that are there to look at a gradient, and write into it.

Note [A hook that only looks]
A hook that gives nothing back and writes in place changes the gradient for all that comes after it.
That may be meant, as in clipping. It is not where the hook uses what the write gives, as a figure
that it keeps or prints, or where its name says that it looks, and it goes on to use the figure.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name, line_at, nodes_of, own_name, user_files
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps

_REGISTERING: Final = frozenset(
    {"register_hook", "register_prehook", "register_full_backward_hook"}
    | {"register_full_backward_pre_hook", "register_multi_grad_hook"}
)
_SAME_MEMORY: Final = frozenset({"detach", "flatten", "reshape", "squeeze", "view", "unsqueeze"})
_NO_WRITES: Final = frozenset({"requires_grad_", "share_memory_"})
_LOOKS: Final = re.compile(
    r"debug|hist|inspect|log|look|measur|monitor|peek|plot|print|prob|record|report|show|stat|trac"
    r"|watch",
    re.IGNORECASE,
)
"""In names of functions."""

_Function = ast.FunctionDef | ast.Lambda


class _Write(NamedTuple):
    node: ast.stmt | ast.expr
    name: str
    """Of the hook."""


def looking(run: RunSteps) -> Iterator[StepFinding]:
    """The first hook that writes into what it looks at. Note [A hook that only looks]."""
    nodes = [(file, *each) for file in user_files(run.trace) for each in nodes_of(run.trace, file)]
    calls = [
        (function, node)
        for _, function, node in nodes
        if isinstance(node, ast.Call) and called_name(node) in _REGISTERING and node.args
    ]
    if not calls:
        return
    ran = run.running
    hooks = [call.args[-1] for function, call in calls if function in ran]
    names = {own_name(one) for one in hooks} - {""}
    for file, _, node in nodes:
        is_hook = (
            node in hooks
            if isinstance(node, ast.Lambda)
            else (isinstance(node, ast.FunctionDef) and node.name in names)
        )
        written = _written(node) if is_hook and isinstance(node, _Function) else None
        if written is None:
            continue
        yield StepFinding(
            kind="hook writes",
            heading=f"{written.name} only looks at gradients, and writes into them",
            frame=line_at(run.trace, file, written.node.lineno, written.name),
            paragraph=(
                f"{_text(written.node)} works in place: the gradient itself is changed, and no copy"
                " of it. It goes on so wherever it is still needed, to what comes before in the"
                " forward or to the parameter, and steps follow what the hook left of it. Work on a"
                " copy: by the function without the underscore, or on grad.clone()."
            ),
        )
        return


_LONGEST: Final = 50
"""Letters of a write that are shown."""


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _written(hook: _Function) -> _Write | None:
    """What a hook writes to a gradient that it is given, only to look; None: nothing, or not so."""
    name = "this hook" if isinstance(hook, ast.Lambda) else hook.name
    arguments = [one.arg for one in hook.args.args if one.arg != "self"]
    given = set(arguments[-2:] if len(arguments) > 2 else arguments[-1:])
    body: Sequence[ast.stmt | ast.expr] = [hook.body] if isinstance(hook, ast.Lambda) else hook.body
    inside = [node for part in body for node in ast.walk(part)]
    if any(
        isinstance(node, ast.Return)
        and node.value is not None
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        for node in inside
    ):
        return None
    gradients = _aliases(inside, given)
    statements = {id(node.value) for node in inside if isinstance(node, ast.Expr)}
    writes = [node for node in inside if _writes(node, gradients)]
    for node in writes:
        is_used = isinstance(node, ast.Call) and id(node) not in statements and node not in body
        after = [
            one
            for one in inside
            if isinstance(one, ast.Name)
            and one.id in gradients
            and isinstance(one.ctx, ast.Load)
            and one.lineno > (getattr(node, "end_lineno", None) or 0)
        ]
        if isinstance(node, ast.stmt | ast.expr) and (
            is_used or (after and len(writes) == 1 and _LOOKS.search(name))
        ):
            return _Write(node, name)
    return None


def _aliases(inside: Sequence[ast.AST], given: set[str]) -> set[str]:
    """The names of what a hook is given, and of what shares its memory."""
    names = set(given)
    for node in inside:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                (names.add if _base(node.value) in names else names.discard)(target.id)
        elif isinstance(node, ast.For) and _base(node.iter) in names:
            names |= {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
    return names


def _base(value: ast.expr) -> str:
    """The variable whose memory an expression has; empty: it is computed."""
    while not isinstance(value, ast.Name):
        if isinstance(value, ast.Subscript) or (
            isinstance(value, ast.Attribute) and value.attr in {"data", "T", "mT"}
        ):
            value = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if called_name(value) not in _SAME_MEMORY:
                return ""
            value = value.func.value
        else:
            return ""
    return value.id


def _writes(node: ast.AST, gradients: set[str]) -> bool:
    if isinstance(node, ast.AugAssign):
        return _base(node.target) in gradients
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        called = node.func.attr
        is_in_place = called.endswith("_") and not called.endswith("__")
        return is_in_place and called not in _NO_WRITES and _base(node.func.value) in gradients
    return False
