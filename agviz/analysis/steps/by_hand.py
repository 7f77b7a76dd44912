"""What a program's own lines do with gradients: take their sign away, or step up on them.

Note [By hand]
A line that writes the absolute value, the square or the positive part of ``.grad`` back into
``.grad`` leaves parameters one direction only. A line of a loop over parameters that adds
``.grad``, times a number that is written and positive, climbs the loss; it is believed where
nothing else steps, the loss is one that is made small, and it has grown.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_LEAST: Final = 8
"""Passes."""
_GROWN: Final = 1.5
"""Times the first loss."""
_LOSSES: Final = ("BinaryCrossEntropy", "Huber", "L1Loss", "MseLoss", "NllLoss", "SmoothL1Loss")
_POSITIVE: Final = frozenset({"abs", "exp", "relu", "square"})
_CLAMPS: Final = frozenset({"clamp", "clamp_min", "clip"})


def without_sign(run: RunSteps) -> Iterator[StepFinding]:
    """The first line that takes the sign of gradients away. Note [By hand]."""
    for file, function, node in run.statements() if run.optimizers else ():
        said = _positive(node)
        if not said:
            continue
        yield StepFinding(
            kind="sign lost",
            heading="gradients lose their sign before the step: parameters move one way only",
            frame=line_at(run.trace, file, node.lineno, function),
            paragraph=(
                f"After {said} no element of .grad is below 0, so that each step makes parameters"
                " smaller or leaves them, never larger, whatever the loss asks for. To bound"
                " gradients, clamp on both sides (clamp_(-c, c)), or use clip_grad_norm_."
            ),
        )
        return


def _positive(node: ast.stmt) -> str:
    """What a statement writes to ``.grad`` that is never negative; empty: nothing."""
    match node:
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="grad"), attr=str(name))
            ) as call
        ) if name.endswith("_"):
            is_so = name[:-1] in _POSITIVE or (name[:-1] in _CLAMPS and _is_bounded(call, 0))
            return ast.unparse(call) if is_so else ""
        case ast.Assign(targets=[ast.Attribute(attr="grad") as target], value=value):
            match value:
                case ast.Call(func=ast.Attribute(value=of, attr=str(name))):
                    is_method = ast.unparse(of) == ast.unparse(target)
                    first = 0 if is_method else 1
                    is_of_it = is_method or ast.unparse(target) in map(ast.unparse, value.args[:1])
                    is_so = name in _POSITIVE or (name in _CLAMPS and _is_bounded(value, first))
                    return ast.unparse(value) if is_of_it and is_so else ""
                case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=2)):
                    return ast.unparse(value) if ast.unparse(left) == ast.unparse(target) else ""
    return ""


def _is_bounded(call: ast.Call, place: int) -> bool:
    """Whether a clamp has a number of 0 or more as its lower bound."""
    words = {word.arg: word.value for word in call.keywords}
    least = words.get("min", call.args[place] if len(call.args) > place else None)
    return (
        isinstance(least, ast.Constant)
        and isinstance(least.value, int | float)
        and least.value >= 0
    )


def stepped_up(run: RunSteps) -> Iterator[StepFinding]:
    """Parameters that the program itself moves up the gradient. Note [By hand]."""
    ids = [task for task in run.passes.ids if task in run.losses]
    if run.optimizers or len(ids) < _LEAST:
        return
    first, last = run.losses[ids[0]], run.losses[ids[-1]]
    if not last > _GROWN * first > 0 or not run.trace.node(ids[-1], 0).name.startswith(_LOSSES):
        return
    for file, function, node in run.statements():
        is_loop = isinstance(node, ast.For) and "arameters()" in ast.unparse(node.iter)
        for each in (one for one in ast.walk(node) if isinstance(one, ast.stmt)):
            if not is_loop or not _adds(each):
                continue
            yield StepFinding(
                kind="diverges",
                heading="each step goes up the gradient: the loss grows",
                frame=line_at(run.trace, file, each.lineno, function),
                paragraph=(
                    "This line adds .grad to a parameter, which makes the loss larger: it was"
                    f" {number(first)} at first and is {number(last)} in the end. A step goes the"
                    " other way: subtract lr * p.grad, or give add_ a negative alpha."
                ),
            )
            return


def _adds(node: ast.stmt) -> bool:
    """Whether a statement adds ``.grad``, times a positive number or a name, to its owner."""
    match node:
        case ast.AugAssign(op=ast.Add(), target=target, value=value):
            return _is_of(target, value)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=target, attr="add_"), args=[value], keywords=by)
        ):
            alphas = [word.value for word in by if word.arg == "alpha"]
            is_minus = any(isinstance(alpha, ast.UnaryOp) for alpha in alphas)
            return not is_minus and _is_of(target, value)
    return False


def _is_of(target: ast.expr, value: ast.expr) -> bool:
    owner = ast.unparse(target).removesuffix(".data")
    text = ast.unparse(value)
    return f"{owner}.grad" in text and "-" not in text
