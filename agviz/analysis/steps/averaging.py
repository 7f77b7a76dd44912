"""Averages of weights whose shares do not add up to 1, or that keep next to nothing of themselves.

Note [Shares]
A loop over the parameters of two models writes to one of them a sum of both, each times a number
that the text gives. That is an average where the numbers add up to 1; where they add up to more,
it grows, and where its own is next to 0, it is the other model.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    line_at,
    own_name,
    tree_of,
    user_files,
    values_named,
    with_functions,
)
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

    Shares = dict[str, float]
    """How much of what is in a sum."""

_LEAST_OWN: Final = 0.1
_HARDLY: Final = 0.99
"""Of what an average was at first, that is left after all steps."""
_LEAST_STEPS: Final = 30
_SAME: Final = frozenset({"clone", "data", "detach", "float"})
"""What leaves numbers as they are."""
_WEIGHTS: Final = ("parameters()", "state_dict()", "buffers()")


def averaged(run: RunSteps) -> Iterator[StepFinding]:
    """Averages with the wrong shares. Note [Shares]."""
    for frame, own, shares in _averages(run):
        said = _judged(own, shares)
        if said is not None:
            yield StepFinding(kind="average", heading=said[0], frame=frame, paragraph=said[1])


def hardly_follows(run: RunSteps) -> StepFinding | None:
    """An average that holds next to nothing of what was trained yet; None: there is none.

    It may be made for a longer run.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    steps = max((len(each.steps) for each in run.optimizers), default=0)
    for frame, own, shares in _averages(run) if steps >= _LEAST_STEPS else ():
        kept = shares.get(own, 0.0)
        left = kept**steps
        if _HARDLY <= left < 1 and math.isclose(sum(shares.values()), 1.0, rel_tol=0.01):
            return StepFinding(
                kind="hardly follows",
                heading=f"after {steps:,} steps the average {own} still is {left:.1%} its start",
                frame=frame,
                paragraph=(
                    f"It keeps {number(kept)} of itself at each update, and so goes back over some"
                    f" {1 / (1 - kept):,.0f} steps: until then it is what the model was before"
                    " training. In a longer run all is well; for this one, take a smaller share"
                    f" to be kept, as min({number(kept)}, (1 + step) / (10 + step)), or begin"
                    " averaging later."
                ),
            )
    return None


def _averages(run: RunSteps) -> Iterator[tuple[Frame, str, Shares]]:
    """What loops over the weights of two models write to, and of which shares that is made."""
    for file in user_files(run.trace) if run.optimizers else ():
        tree = tree_of(run.trace, file)
        for function, loop in with_functions(tree):
            if not isinstance(loop, ast.For) or not _is_of_two(loop):
                continue
            for node in ast.walk(loop) if function in run.running else ():
                found = _of_statement(node, tree)
                if found is not None and isinstance(node, ast.stmt):
                    yield line_at(run.trace, file, node.lineno, function), *found


def _is_of_two(loop: ast.For) -> bool:
    """Whether a loop goes through the weights of two models side by side."""
    text = ast.unparse(loop.iter)
    return sum(text.count(word) for word in _WEIGHTS) >= 2 and isinstance(loop.target, ast.Tuple)


def _judged(own: str, shares: Shares) -> tuple[str, str] | None:
    kept = shares.get(own, 0.0)
    others = [name for name in shares if name != own]
    if len(others) != 1 or not 0 < kept < 1 or not shares[others[0]] > 0:
        return None
    (other,) = others
    taken = shares[other]
    if not math.isclose(kept + taken, 1.0, rel_tol=0.01):
        heading = f"an average of weights keeps {number(kept)} of itself and adds {number(taken)}"
        return heading, (
            f"{own} becomes {number(kept)} times itself plus {number(taken)} times {other}: shares"
            f" of {number(kept + taken)}, not 1, so that it comes to {number(taken / (1 - kept))}"
            f" times the weights it follows. Give {other} the rest: {own}.mul_({number(kept)})"
            f".add_({other}, alpha={number(1 - kept)})."
        )
    if kept > _LEAST_OWN:
        return None
    return f"an average of weights keeps only {number(kept)} of itself at each update", (
        f"{own} becomes {number(kept)} times itself plus {number(taken)} times {other}: it is the"
        " other model at once, and forgets all that was averaged before. The two numbers look"
        " swapped: an average, or a target network, keeps the larger share. Write"
        f" {own}.lerp_({other}, {number(kept)})."
    )


def _of_statement(node: ast.AST, tree: ast.Module) -> tuple[str, Shares] | None:
    """What a statement writes to in place, and the shares of what it becomes; None: not known."""
    shares: Shares | None = None
    match node:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=own), attr="data")], value=value):
            shares = _shares(value, tree)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="copy_"), args=[value])):
            own, shares = _name(owner), _shares(value, tree)
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(
                    value=ast.Call(func=ast.Attribute(value=owner, attr="mul_"), args=[factor]),
                    attr="add_",
                ),
                args=[value, *_],
                keywords=words,
            )
        ):
            own, more = _name(owner), _shares(value, tree)
            alpha = next((word.value for word in words if word.arg == "alpha"), ast.Constant(1))
            by = _number(alpha, tree)
            if more is not None:
                shares = {name: share * by for name, share in more.items()}
                shares[own] = shares.get(own, 0.0) + _number(factor, tree)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=owner, attr="lerp_"), args=[value, weight])
        ):
            own, other, by = _name(owner), _name(value), _number(weight, tree)
            shares = {own: 1 - by, other: by} if other else None
        case _:
            return None
    is_known = own and shares and all(map(math.isfinite, shares.values()))
    return (own, shares) if is_known and shares else None


def _shares(value: ast.expr, tree: ast.Module) -> Shares | None:
    """How much of which variables is in a sum; None: it is another expression."""
    match value:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = _shares(left, tree), _shares(right, tree)
            if one is None or other is None:
                return None
            return {
                name: one.get(name, 0.0) + other.get(name, 0.0)
                for name in dict.fromkeys([*one, *other])
            }
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            for factor, part in ((left, right), (right, left)):
                by, of = _number(factor, tree), _shares(part, tree)
                if math.isfinite(by) and of is not None:
                    return {name: share * by for name, share in of.items()}
            return None
    name = _name(value)
    return {name: 1.0} if name else None


def _name(value: ast.expr) -> str:
    """The variable whose numbers an expression has; empty: it has no such."""
    match value:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=attr) if attr in _SAME:
            return _name(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=[]) if attr in _SAME:
            return _name(inner)
    return ""


def _number(node: ast.expr, tree: ast.Module) -> float:
    """The number that an expression has, by what the file gives to names; NaN: not known."""
    match node:
        case ast.Constant(value=bool()):
            return math.nan
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _number(left, tree) - _number(right, tree)
        case ast.Name() | ast.Attribute():
            found = set(values_named(tree, own_name(node)))
            return found.pop() if len(found) == 1 else math.nan
    return math.nan
