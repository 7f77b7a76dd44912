"""Noise that is drawn once and learnt by heart.

Note [One draw]
Who trains a network to predict the noise in noisy data draws it anew for each step. Drawn before
the loop, it is the same for all: the network learns that one draw. By the text: in a loop with
``backward``, a variable that is called noise, that was drawn outside of any loop, and that the loop
does not write to, is mixed with data, and is what the prediction is compared with. Data that is
drawn once, as in examples, is used in the same way, so that its name has to decide.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    called_name,
    differentiated,
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


def _is_learnt(inside: Sequence[ast.AST], name: str) -> bool:
    """Whether a loop, which holds this, mixes a variable in, compares with it, and keeps it."""
    is_mixed = is_compared = False
    for node in inside:
        match node:
            case ast.Name(id=other, ctx=ast.Store()) if other == name:
                return False
            case ast.Call(func=ast.Attribute(value=ast.Name(id=other), attr=method)):
                if other == name and method.endswith("_"):
                    return False
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
    return is_mixed and is_compared
