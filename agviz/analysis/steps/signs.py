"""Terms of a loss whose sign pushes the wrong way, from how the program writes the sum.

Note [Terms]
The loss on which ``backward`` is called is followed through the function's own variables to a sum
of terms, each with its sign; a name that has several values, or a factor whose sign is not written,
ends the search. A penalty of weights belongs there with a plus, as torch minimises. An entropy with
a plus makes a policy sure, and a ``log_prob`` times a reward with a plus makes rewarded actions
rare: either can be meant (a temperature, costs instead of rewards), so these are said and not
judged.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name, parsed, user_files, with_functions
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.run import RunSteps
from agviz.traces.rows import Frame, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.traces.reader import Trace

_MOST_DEEP: Final = 8
_KEEPING: Final = frozenset({"float", "mean", "reshape", "squeeze", "sum", "view"})
"""Methods that leave the sign of a term."""
_SIZES: Final = frozenset({"abs", "norm", "pow", "square", "sum"})
_PASSES: Final = 3


class _Term(NamedTuple):
    """A summand of a loss."""

    sign: int
    value: ast.expr
    """Without what leaves its sign."""
    single: Mapping[str, ast.expr]
    """What the names of its function stand for that have one value."""


def penalties(run: RunSteps) -> Iterator[StepFinding]:
    """Penalties of weights that are taken away from the loss. Note [Terms]."""
    for file, function, term in _terms(run):
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


def signs(trace: Trace) -> StepFinding | None:
    """A term of a policy's loss that may have the wrong sign; None: none has.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if trace.meta.partial:
        return None
    run = RunSteps(trace.beginning)
    terms = list(_terms(run)) if run.optimizers and not _is_maximized(trace) else []
    called = [_names(term.value, term.single, _MOST_DEEP) for _, _, term in terms]
    for (file, function, term), names in zip(terms, called, strict=True):
        others = [each for each in called if each is not names]
        if term.sign < 0:
            continue
        if "entropy" in names and any("log_prob" in each for each in others):
            return StepFinding(
                kind="entropy",
                heading="the entropy is added to the loss: steps make the policy surer",
                frame=_line(trace, file, function, term),
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
                frame=_line(trace, file, function, term),
                paragraph=(
                    "An optimizer makes the loss smaller. Where the weight of an action is"
                    " positive, a loss of log_prob * weight makes the action less likely. If the"
                    " weight is a reward, a return or an advantage, put a minus in front:"
                    " -(log_prob * weight).mean(). If it is a cost, all is well."
                ),
            )
    return None


def _is_maximized(trace: Trace) -> bool:
    """Whether the program has an optimizer that makes a loss larger."""
    return any(
        isinstance(node, ast.keyword) and node.arg == "maximize"
        for file in user_files(trace)
        for _, node in with_functions(parsed(trace.source(file)))
    )


def _terms(run: RunSteps) -> Iterator[tuple[str, str, _Term]]:
    """The terms of the losses of the last passes: file, function, term."""
    lines = {visible(run.trace.call_site(task)) for task in run.passes.ids[-_PASSES:]}
    for line in sorted(filter(None, lines)):
        nodes = [
            node
            for function, node in with_functions(parsed(run.trace.source(line.file)))
            if function == line.function
        ]
        values: dict[str, list[ast.expr]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                values.setdefault(ast.unparse(node.targets[0]), []).append(node.value)
            elif isinstance(node, ast.AugAssign):
                values.setdefault(ast.unparse(node.target), []).extend([node.value] * 2)
        single = {name: each[0] for name, each in values.items() if len(each) == 1}
        for node in nodes:
            match node:
                case ast.Call(func=ast.Attribute(value=loss, attr="backward"), lineno=number):
                    if number <= line.line <= (node.end_lineno or number):
                        for term in _summands(loss, 1, single, _MOST_DEEP):
                            yield line.file, line.function, term


def _summands(
    value: ast.expr, sign: int, single: Mapping[str, ast.expr], deep: int
) -> Iterator[_Term]:
    if not deep:
        return
    match value:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            yield from _summands(left, sign, single, deep - 1)
            yield from _summands(
                right, sign if isinstance(op, ast.Add) else -sign, single, deep - 1
            )
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            yield from _summands(inner, -sign, single, deep - 1)
        case ast.BinOp(left=ast.Constant(value=int() | float() as by), op=ast.Mult(), right=of) | (
            ast.BinOp(
                left=of, op=ast.Mult() | ast.Div(), right=ast.Constant(value=int() | float() as by)
            )
        ):
            yield from _summands(of, sign if by > 0 else -sign, single, deep - 1)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _KEEPING and _is_sum(
            inner, single
        ):
            yield from _summands(inner, sign, single, deep - 1)
        case ast.Name(id=name) if name in single:
            yield from _summands(single[name], sign, single, deep - 1)
        case _:
            yield _Term(sign, value, single)


def _is_sum(value: ast.expr, single: Mapping[str, ast.expr]) -> bool:
    """Whether it can be taken apart further."""
    if isinstance(value, ast.Name):
        return value.id in single
    return isinstance(value, ast.UnaryOp | ast.BinOp)


def _is_penalty(value: ast.expr) -> bool:
    """Whether it is a sum over parameters of something that is never below 0."""
    names = {called_name(node) for node in _calls(value)}
    return bool(names & {"parameters", "named_parameters"}) and bool(names & (_SIZES - {"sum"}))


def _is_weighed(term: _Term) -> bool:
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


def _line(trace: Trace, file: str, function: str, term: _Term) -> Frame:
    number = term.value.lineno
    return Frame(file, number, function, False, trace.source(file)[number - 1].strip())
