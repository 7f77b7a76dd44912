"""Terms of a loss whose sign pushes the wrong way, from how the program writes the sum.

Note [Terms]
The loss on which ``backward`` is called is followed through the function's own variables to a sum
of terms, each with its sign; a name that has several values, or a factor whose sign is not written,
ends the search. A call of a function of the program that returns in one place is what it returns.
A penalty of weights belongs there with a plus, as torch minimises. An entropy with
a plus makes a policy sure, and a ``log_prob`` times a reward with a plus makes rewarded actions
rare: either can be meant (a temperature, costs instead of rewards), so these are said and not
judged.

A clipped surrogate is the smaller of ratio * gain and of the same with the ratio clamped, which is
made larger. The larger of both has the plain one wherever the clamp would bound anything. A minus
in both arguments swaps the two: min(-a, -b) is -max(a, b). Of costs, the larger of both is made
smaller, so that the smaller one with a plus is wrong whatever the weights are.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    bindings,
    called_name,
    elements,
    nodes_by_function,
    nodes_of,
    tree_of,
    user_files,
)
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.values import all_given
from agviz.traces.rows import Frame, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace

_MOST_DEEP: Final = 8
_KEEPING: Final = frozenset({"float", "mean", "reshape", "squeeze", "sum", "view"})
"""Methods that leave the sign of a term."""
_SIZES: Final = frozenset({"abs", "norm", "pow", "square", "sum"})
_CHOOSING: Final = frozenset({"max", "maximum", "min", "minimum"})
_CLAMPS: Final = frozenset({"clamp", "clip"})
_REDUCING: Final = frozenset({"torch.mean", "torch.sum"})
_PASSES: Final = 3


class LossTerm(NamedTuple):
    """A summand of a loss."""

    sign: int
    value: ast.expr
    """Without what leaves its sign."""
    single: Mapping[str, ast.expr]
    """What the names of its function stand for that have one value."""
    function: str


_ADVERSARIAL: Final = re.compile(r"(?i)domain|adv|discr|confus")
"""What terms are called that a network is to make worse."""


class _Function(NamedTuple):
    """A function of the program that returns in one place."""

    name: str
    value: ast.expr
    """What it returns."""
    single: Mapping[str, ast.expr]


class _Surrogate(NamedTuple):
    """A product with a ratio, by how its factors are written."""

    sign: int
    factors: tuple[str, ...]
    """Without what is clamped."""
    clamped: tuple[str, ...]


def penalties(run: RunSteps) -> Iterator[StepFinding]:
    """Penalties of weights that are taken away from the loss. Note [Terms]."""
    for file, function, term in terms_of_losses(run):
        if term.sign < 0 and _is_penalty(term.value):
            yield StepFinding(
                kind="penalty",
                heading="the norm of the weights is taken away from the loss: steps make it larger",
                frame=_line(run.trace, file, function, term),
                paragraph=(
                    "An optimizer makes the loss smaller, and with a minus in front that is done"
                    " by larger weights: instead of being held small they grow, and nothing bounds"
                    " the loss from below. Add the penalty: loss + factor * norm."
                ),
            )
            return


def signs(run: RunSteps) -> StepFinding | None:
    """A term of a policy's loss that may have the wrong sign; None: none has.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    terms = list(terms_of_losses(run)) if run.optimizers and not _is_maximized(run.trace) else []
    called = [_names(term.value, term.single, _MOST_DEEP) for _, _, term in terms]
    for (file, function, term), names in zip(terms, called, strict=True):
        others = [each for each in called if each is not names]
        if term.sign < 0:
            continue
        if "entropy" in names and any("log_prob" in each for each in others):
            return StepFinding(
                kind="entropy",
                heading="the entropy is added to the loss: steps make the policy surer",
                frame=_line(run.trace, file, function, term),
                paragraph=(
                    "An optimizer makes the loss smaller, and so the entropy, too: the policy soon"
                    " takes one action, and nothing else is tried. A bonus for exploring has a"
                    " minus: loss - factor * entropy. If a sure policy is wanted, all is well."
                ),
            )
        if {"log_prob", "sample"} <= names and _is_weighed(term):
            return StepFinding(
                kind="log_prob",
                heading="log_prob times its weight is made smaller: what is rewarded becomes rarer",
                frame=_line(run.trace, file, function, term),
                paragraph=(
                    "An optimizer makes the loss smaller. Where the weight of an action is"
                    " positive, a loss of log_prob * weight makes the action less likely. If the"
                    " weight is a reward, a return or an advantage, put a minus in front:"
                    " -(log_prob * weight).mean(). If it is a cost, all is well."
                ),
            )
    return None


def unclipped_surrogates(run: RunSteps) -> Iterator[StepFinding]:
    """Losses that take the larger one of a surrogate and the clipped one. Note [Terms]."""
    for file, _, term in terms_of_losses(run):
        found = _larger_surrogate(term)
        if found is None or _is_maximized(run.trace):
            continue
        call, function, is_below = found
        remedy = f"Take torch.{'min' if 'max' in called_name(call) else 'max'} of the same."
        said = "the larger of ratio * gain and its clipped form is made larger"
        if not is_below:
            remedy = (
                "If the ratio is weighted by advantages, the loss is -torch.min(a, b).mean() of"
                " both products; if by costs, torch.max(a, b).mean()."
            )
            said = "the smaller of ratio * weight and its clipped form is made smaller"
        yield StepFinding(
            kind="clip undone",
            heading=f"{called_name(call)} undoes the clipping: {said}",
            frame=_frame(run.trace, file, function, call),
            paragraph=(
                "Where the clamp bounds the ratio, the plain product is chosen, and where the"
                " ratio goes the wrong way, the clipped one, which has no gradient: the policy is"
                f" pushed on however far it has moved, and not called back. {remedy}"
            ),
        )
        return


def _larger_surrogate(term: LossTerm) -> tuple[ast.Call, str, bool] | None:
    """The call that takes the wrong one of two surrogates, and whether it is under a minus."""
    sign, value = term.sign, term.value
    for _ in range(_MOST_DEEP):
        match value:
            case ast.Name(id=name) if name in term.single:
                value = term.single[name]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                sign, value = -sign, inner
            case ast.Call(args=[inner, *_]) if ast.unparse(value.func) in _REDUCING:
                value = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _KEEPING:
                value = inner
            case _:
                break
    if not isinstance(value, ast.Call) or called_name(value) not in _CHOOSING:
        return None
    both = [_surrogate(each, term.single) for each in all_given(value)]
    if len(both) != 2 or {len(each.clamped) for each in both} != {0, 1}:
        return None
    plain, bounded = sorted(both, key=lambda each: len(each.clamped))
    is_same = sorted(plain.factors) == sorted((*bounded.factors, *bounded.clamped))
    if not is_same or len(plain.factors) < 2 or plain.sign != bounded.sign:
        return None
    if not _is_ratio(bounded.clamped[0], term.single):
        return None
    is_larger = ("max" in called_name(value)) == (plain.sign > 0)
    is_below = sign * plain.sign < 0
    return (value, term.function, is_below) if is_larger == is_below else None


def _surrogate(value: ast.expr, single: Mapping[str, ast.expr]) -> _Surrogate:
    waiting, sign = [value], 1
    factors: list[str] = []
    clamped: list[str] = []
    for _ in range(4 * _MOST_DEEP):
        if not waiting:
            break
        value = waiting.pop()
        match value:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                waiting += [left, right]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                sign = -sign
                waiting.append(inner)
            case ast.Name(id=name) if _is_product(single.get(name)):
                waiting.append(single[name])
            case ast.Call() if called_name(value) in _CLAMPS and all_given(value):
                clamped.append(ast.unparse(all_given(value)[0]))
            case _:
                factors.append(ast.unparse(value))
    return _Surrogate(sign, tuple(factors), tuple(clamped))


def _is_product(value: ast.expr | None) -> bool:
    match value:
        case ast.BinOp(op=ast.Mult()) | ast.UnaryOp(op=ast.USub()):
            return True
        case ast.Call():
            return called_name(value) in _CLAMPS
    return False


def _is_ratio(written: str, single: Mapping[str, ast.expr]) -> bool:
    """Whether it is e to the power of a difference, as far as names tell."""
    return "exp" in _names(ast.parse(written, mode="eval").body, single, _MOST_DEEP)


def _is_maximized(trace: Trace) -> bool:
    """Whether the program has an optimizer that makes a loss larger."""
    return any(
        isinstance(node, ast.keyword) and node.arg == "maximize"
        for file in user_files(trace)
        for _, node in nodes_of(trace, file)
    )


def terms_of_losses(run: RunSteps) -> Iterator[tuple[str, str, LossTerm]]:
    """The terms of the losses of the last passes: file, function, term."""
    lines = {visible(run.trace.call_site(task)) for task in run.passes.ids[-_PASSES:]}
    for line in sorted(filter(None, lines)):
        nodes = nodes_by_function(run.trace, line.file)
        functions, own = _returning(nodes), nodes.get(line.function, [])
        whole = _Function(line.function, ast.Constant(None), _single(own))
        for node in own:
            match node:
                case ast.Call(func=ast.Attribute(value=loss, attr="backward"), lineno=number):
                    if number <= line.line <= (node.end_lineno or number):
                        for term in _summands(loss, 1, whole, functions, _MOST_DEEP):
                            yield line.file, term.function, term


def reversed_twice(run: RunSteps) -> Iterator[StepFinding]:
    """A term with a minus whose gradient a Function of the program turns round again."""
    reversing = {
        owner.name
        for file in user_files(run.trace)
        for owner in ast.walk(tree_of(run.trace, file))
        if isinstance(owner, ast.ClassDef) and _reverses(owner)
    }
    if not reversing or not run.optimizers:
        return
    for file, function, term in terms_of_losses(run):
        text = " ".join(_written_out(term.value, term.single, _MOST_DEEP))
        name = min(reversing)
        if term.sign < 0 and (f"{name}.apply" in text or _ADVERSARIAL.search(text)):
            yield StepFinding(
                kind="reversed twice",
                heading=f"a loss has a minus, and {name} turns its gradient round as well",
                frame=_line(run.trace, file, function, term),
                paragraph=(
                    f"The minus makes the head behind {name} worse and worse, and the two signs"
                    f" cancel for what is before it: its features are made to help. {name} alone is"
                    " what makes features worse for a head that learns: add the term with a plus."
                ),
            )
            return


def _written_out(value: ast.expr, single: Mapping[str, ast.expr], deep: int) -> Iterator[str]:
    """How a value is written, and the values of its names."""
    yield ast.unparse(value)
    for node in ast.walk(value) if deep else ():
        if isinstance(node, ast.Name) and node.id in single:
            yield from _written_out(single[node.id], single, deep - 1)


def _reverses(owner: ast.ClassDef) -> bool:
    """Whether the backward of a Function gives back what it is given with a minus."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == "backward":
            inside = list(ast.walk(node))
            return any(
                _has_minus(part, _single(inside), _MOST_DEEP)
                for each in inside
                if isinstance(each, ast.Return) and each.value is not None
                for part in elements(each.value)
            )
    return False


def _has_minus(value: ast.expr, single: Mapping[str, ast.expr], deep: int) -> bool:
    """Whether a product has a factor with a minus."""
    match value:
        case ast.UnaryOp(op=ast.USub()) | ast.Call(func=ast.Attribute(attr="neg")):
            return True
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return any(_has_minus(side, single, deep) for side in (left, right))
        case ast.Name(id=name) if name in single and deep:
            return _has_minus(single[name], single, deep - 1)
    return False


def _returning(nodes: Mapping[str, Sequence[ast.AST]]) -> dict[str, _Function]:
    """The functions of a file that return one value in one place, by their names."""
    defined = [
        node.name
        for several in nodes.values()
        for node in several
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    found = {}
    for name in defined:
        returns = [node.value for node in nodes.get(name, ()) if isinstance(node, ast.Return)]
        if defined.count(name) == len(returns) == 1 and returns[0] is not None:
            found[name] = _Function(name, returns[0], _single(nodes[name]))
    return found


def _single(nodes: Sequence[ast.AST]) -> dict[str, ast.expr]:
    """The values of names of a function that have one."""
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            for target, value in bindings(node):
                values.setdefault(ast.unparse(target), []).append(value)
        elif isinstance(node, ast.AugAssign):
            values.setdefault(ast.unparse(node.target), []).extend([node.value] * 2)
    return {name: each[0] for name, each in values.items() if len(each) == 1}


def _summands(
    value: ast.expr,
    sign: int,
    inside: _Function,
    functions: Mapping[str, _Function],
    deep: int,
) -> Iterator[LossTerm]:
    if not deep:
        return
    single = inside.single
    more = (inside, functions, deep - 1)
    match value:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            yield from _summands(left, sign, *more)
            yield from _summands(right, sign if isinstance(op, ast.Add) else -sign, *more)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            yield from _summands(inner, -sign, *more)
        case ast.BinOp(left=ast.Constant(value=int() | float() as by), op=ast.Mult(), right=of) | (
            ast.BinOp(
                left=of, op=ast.Mult() | ast.Div(), right=ast.Constant(value=int() | float() as by)
            )
        ):
            yield from _summands(of, sign if by > 0 else -sign, *more)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _KEEPING and _is_sum(
            inner, single
        ):
            yield from _summands(inner, sign, *more)
        case ast.Name(id=name) if name in single:
            yield from _summands(single[name], sign, *more)
        case ast.Call() if called_name(value) in functions:
            called = functions[called_name(value)]
            yield from _summands(called.value, sign, called, functions, deep - 1)
        case _:
            yield LossTerm(sign, value, single, inside.name)


def _is_sum(value: ast.expr, single: Mapping[str, ast.expr]) -> bool:
    """Whether it can be taken apart further."""
    if isinstance(value, ast.Name):
        return value.id in single
    return isinstance(value, ast.UnaryOp | ast.BinOp)


def _is_penalty(value: ast.expr) -> bool:
    """Whether it is a sum over parameters of something that is never below 0."""
    names = {called_name(node) for node in _calls(value)}
    return bool(names & {"parameters", "named_parameters"}) and bool(names & (_SIZES - {"sum"}))


def _is_weighed(term: LossTerm) -> bool:
    """Whether ``log_prob`` is multiplied by something else, and neither has a minus in front."""
    for node in ast.walk(term.value):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        sides = [_names(side, term.single, _MOST_DEEP) for side in (node.left, node.right)]
        of_action = ["log_prob" in names for names in sides]
        minus = any(_is_negated(side, term.single) for side in (node.left, node.right))
        if of_action.count(True) == 1 and not minus:
            return True
    return False


def _is_negated(value: ast.expr, single: Mapping[str, ast.expr]) -> bool:
    """Whether a factor, or what its name stands for, begins with a minus."""
    for _ in range(_MOST_DEEP):
        if isinstance(value, ast.Name) and value.id in single:
            value = single[value.id]
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            value = value.func.value  # of a chain of methods
        else:
            break
    return isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)


def _names(value: ast.expr, single: Mapping[str, ast.expr], deep: int) -> set[str]:
    """The functions and methods that are called to make a value, by their last names."""
    found = {called_name(call) for call in _calls(value)}
    if deep:
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id in single:
                found |= _names(single[node.id], single, deep - 1)
    return found


def _calls(value: ast.expr) -> Iterator[ast.Call]:
    return (node for node in ast.walk(value) if isinstance(node, ast.Call))


def _line(trace: Trace, file: str, function: str, term: LossTerm) -> Frame:
    return _frame(trace, file, function, term.value)


def _frame(trace: Trace, file: str, function: str, value: ast.expr) -> Frame:
    number = value.lineno
    return Frame(file, number, function, False, trace.source(file)[number - 1].strip())
