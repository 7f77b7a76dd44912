"""Noise that is drawn once and learnt by heart, or drawn apart from the one that is to be learnt.

Note [One draw]
Who trains a network to predict the noise in noisy data draws it anew for each step. Drawn before
the loop, it is the same for all: the network learns that one draw. By the text: in a loop with
``backward``, a variable that is called noise, that was drawn outside of any loop, and that the loop
does not write to, is mixed with data, and is what the prediction is compared with. Data that is
drawn once, as in examples, is used in the same way, so that its name has to decide.

Note [Two draws]
A function that makes noisy data takes the noise, or draws some where it is given none. Who draws
noise, compares a prediction with it, and calls such a function without it, compares with what was
never mixed in: the best prediction is the mean.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import (
    called_name,
    differentiated,
    elements,
    line_at,
    nodes_by_function,
    user_files,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps

_DRAWS: Final = frozenset({"rand", "rand_like", "randn", "randn_like"})
_NOISE: Final = re.compile(r"(?:.*_)?(?:eps|epsilon|noise|xi)(?:_.*)?$")
_COMPARING: Final = ("loss", "criterion")


def drawn_once(run: RunSteps) -> Iterator[StepFinding]:
    """Noise of before a loop that each turn mixes in and predicts. Note [One draw]."""
    for file in user_files(run.trace) if run.optimizers else ():
        for function, nodes in nodes_by_function(run.trace, file).items():
            loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
            training = [node for node in loops if differentiated(ast.walk(node))]
            if function not in run.running or not training:
                continue
            inner = {id(part) for loop in loops for part in ast.walk(loop)}
            for node in nodes:
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as drawn):
                        if id(node) in inner or not (
                            called_name(drawn) in _DRAWS and _NOISE.match(name)
                        ):
                            continue
                        if any(_is_learnt(list(ast.walk(loop)), name) for loop in training):
                            yield StepFinding(
                                kind="drawn once",
                                heading=f"{name} is drawn once, before the loop that learns it",
                                frame=line_at(run.trace, file, node.lineno, function),
                                paragraph=(
                                    f"Each turn mixes {name} into the data and compares the"
                                    f" prediction with {name}: it is the same in all of them, so"
                                    " that the network learns this one draw by heart, and nothing"
                                    " of any other. Draw it inside of the loop."
                                ),
                            )
                            return


def drawn_apart(run: RunSteps) -> Iterator[StepFinding]:
    """Noise that is compared with, where the data has noise of its own. Note [Two draws]."""
    names = run.given_names
    makers = {}
    for name, defined in names.functions.items() if run.optimizers else ():
        inside = list(ast.walk(defined[0]))
        mixed = [each for each in _noises(inside) if _uses(inside, each.name).is_mixed]
        gives = {ast.unparse(part) for each in _returned(inside) for part in elements(each)}
        if len(defined) == len(mixed) == 1 and mixed[0].name not in gives:
            makers[name] = defined[0], mixed[0]
    for file, call in names.calls:
        caller, made = names.function(call), makers.get(called_name(call))
        if made is None or caller is None or caller.name not in run.running:
            continue
        maker, own = made
        around = list(ast.walk(caller))
        compared = [each for each in _noises(around) if _uses(around, each.name) == (False, True)]
        if len(compared) != 1:
            continue
        (other,) = compared
        given = {
            ast.unparse(each) for each in [*call.args, *(word.value for word in call.keywords)]
        }
        if other.name in given:
            continue
        written = ast.unparse(call.func)
        takes = own.name in {each.arg for each in maker.args.args + maker.args.kwonlyargs}
        remedy = (
            f"Give it the noise: {written}(..., {own.name}={other.name})."
            if takes
            else f"Let {maker.name} return what it has drawn, or take it as an argument."
        )
        yield StepFinding(
            kind="drawn apart",
            heading=f"{other.name} is compared with, and {written} mixes in noise of its own",
            frame=line_at(run.trace, file, call.lineno, caller.name),
            paragraph=(
                f"Line {other.line} draws {other.name}, which the prediction is to give. The data"
                f" holds what {maker.name} draws by itself (line {own.line}), another sample,"
                " from which nothing of it can be told: the network learns the mean, and the loss"
                f" stays near the variance of the noise. {remedy}"
            ),
        )
        return


class _Noise(NamedTuple):
    name: str
    line: int


class _Use(NamedTuple):
    is_mixed: bool
    is_compared: bool


def _noises(inside: Sequence[ast.AST]) -> list[_Noise]:
    """The variables of a function to which it gives noise."""
    return [
        _Noise(name, node.lineno)
        for node in inside
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and called_name(node.value) in _DRAWS
        for name in map(ast.unparse, node.targets)
        if _NOISE.match(name)
    ]


def _returned(inside: Sequence[ast.AST]) -> list[ast.expr]:
    return [node.value for node in inside if isinstance(node, ast.Return) and node.value]


def _is_learnt(inside: Sequence[ast.AST], name: str) -> bool:
    """Whether a loop, which holds this, mixes a variable in, compares with it, and keeps it."""
    for node in inside:
        match node:
            case ast.Name(id=other, ctx=ast.Store()) if other == name:
                return False
            case ast.Call(func=ast.Attribute(value=ast.Name(id=other), attr=method)):
                if other == name and method.endswith("_"):
                    return False
    return all(_uses(inside, name))


def _uses(inside: Sequence[ast.AST], name: str) -> _Use:
    """What is done with a variable."""
    is_mixed = is_compared = False
    for node in inside:
        match node:
            case ast.Call(args=args, keywords=words):
                given = {ast.unparse(each) for each in [*args, *(word.value for word in words)]}
                if name in given:
                    text = called_name(node).lower()
                    if any(word in text for word in _COMPARING):
                        is_compared = True
                    else:
                        is_mixed = True
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                is_compared |= name in {ast.unparse(left), ast.unparse(right)}
            case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
                is_mixed |= name in {ast.unparse(left), ast.unparse(right)}
    return _Use(is_mixed, is_compared)
