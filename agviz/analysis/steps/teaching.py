"""A teacher that is asked for targets, and that nobody puts into evaluation mode.

Its dropout makes other targets in each step, its batch norms depend on the batch and move on. Where
noise in targets is wanted, as for a mean teacher, that is meant: it is shown, not judged.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    called_name,
    line_at,
    nodes_of,
    own_name,
    turns_gradients_off,
    user_files,
)
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.analysis.steps.run import RunSteps

_TEACHER: Final = re.compile(
    r"(?:.*_)?teacher(?:_.*)?|(?:ref|reference|pretrained)(?:_?(?:model|net))?"
)
_NORMS: Final = re.compile(r"(?:Sync)?BatchNorm(?:\dd)?")
_DROPS: Final = re.compile(
    r"(?:Alpha|Feature)?Dropout(?:\dd)?|Transformer(?:En|De)coderLayer|Transformer"
)


def in_training(run: RunSteps) -> StepFinding | None:
    """The first teacher in training mode; None: there is none. It may be meant.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    every = [node for file in user_files(run.trace) for _, node in nodes_of(run.trace, file)]
    if not run.optimizers or any(map(_makes_evaluated, every)):
        return None
    for file, function, statement in run.statements():
        if not isinstance(statement, ast.With) or not turns_gradients_off(statement):
            continue
        for call in _calls(statement.body):
            parts = _moving(run, every, call.func) if _is_teacher(own_name(call.func)) else ""
            if not parts:
                continue
            name = ast.unparse(call.func)
            return StepFinding(
                kind="teacher in training",
                heading=f"{name} is in training mode where it is asked for targets",
                frame=line_at(run.trace, file, call.lineno, function),
                paragraph=(
                    f"It has {parts}, and no line calls {name}.eval(): no_grad leaves the mode"
                    " as it is. Dropout makes other targets in each step; batch norms give"
                    " what depends on the batch, and their statistics move on. Call"
                    f" {name}.eval() once it is made, and again after train() of what holds"
                    " it. If noise in its targets is wanted, all is well."
                ),
            )
    return None


def _is_teacher(name: str) -> bool:
    return bool(_TEACHER.fullmatch(name))


def _calls(parts: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (node for each in parts for node in ast.walk(each) if isinstance(node, ast.Call))


def _makes_evaluated(node: ast.AST) -> bool:
    """Whether a call may put a teacher into evaluation mode: whatever is not surely another one."""
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr="eval" | "train")):
            if called_name(node) == "train" and not (node.args or node.keywords):
                return False
            return not isinstance(of, ast.Name | ast.Attribute) or _may_be_teacher(own_name(of))
    return False


def _may_be_teacher(name: str) -> bool:
    return _is_teacher(name) or len(name) <= 1 or name in {"each", "model", "net", "self"}


def _moving(run: RunSteps, every: Iterable[ast.AST], called: ast.expr) -> str:
    """What of a model depends on its mode, in words; empty: nothing does, or it is not known."""
    names = run.given_names
    classes, known = names.classes(called), set[str]()
    defined = {node.name: node for node in every if isinstance(node, ast.ClassDef)}
    while classes - known:
        name = (classes - known).pop()
        known.add(name)
        if name in defined:
            classes |= {called_name(node) for node in _calls([defined[name]])}
    if "" in known:
        return ""
    given = filter(None, names.given(called))  # as a Sequential that is written out
    made = (known - defined.keys()) | {called_name(node) for node in _calls(given)}
    found = [
        word
        for word, parts in (("dropout", _DROPS), ("batch norms", _NORMS))
        if any(parts.fullmatch(name) for name in made)
    ]
    return " and ".join(found)
