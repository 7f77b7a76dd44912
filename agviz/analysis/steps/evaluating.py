"""What acts in evaluation as it does in training, since ``eval()`` does not reach it.

Note [Beyond eval]
``eval()`` sets ``training`` of modules. A function that is called without it, or with True, and a
module that forward makes anew do not follow. That the model is in evaluation mode when functions
run without gradients is known by its other modules, which were in training mode while gradients
were on, or by the text: ``model.eval()`` comes before the line that calls the model. A dropout that
is given ``training=True`` is meant to stay on, to sample predictions.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, nodes_beside
from agviz.analysis.lineage import last_name
from agviz.analysis.steps.dropping import DROPS
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame

_PASSES: Final = 8
"""That are looked at, the last ones; and what comes behind them."""
_MOST_OPS: Final = 5_000
_TRAINING: Final = "training=True"
_FLAG: Final = re.compile(r"\btraining=(True|False)\b")
_NORM: Final = "batch_norm"
_PLACE: Final = {_NORM: 5}
"""Which argument ``training`` is; of dropouts the third."""
_ENDS_OF_CLASSES: Final = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")


def left_on(run: RunSteps) -> Iterator[StepFinding]:
    """A dropout, or statistics of a batch, in a validation that has called ``eval()``."""
    if not run.trace.meta.check_forward or not run.passes:
        return
    ops = [
        op
        for task in (*run.passes.ids[-_PASSES:], -1)
        for op in run.trace.forward_ops(task, limit=_MOST_OPS)
        if op.recomputed_in == -1 and op.module is not None and _FLAG.search(op.arguments)
    ]
    for op in ops:
        name = last_name(op)
        if op.grad_enabled or _TRAINING not in op.arguments or name not in {*DROPS, _NORM}:
            continue
        how = _why_on(run.trace, op, name)
        if how and (_has_switched(ops, op) or _is_switched(run.trace, op.stack)):
            yield _found(op, name, how)
            return


def _found(op: ForwardOpRow, name: str, how: str) -> StepFinding:
    is_norm = name == _NORM
    heading = f"{name} acts in evaluation as in training"
    does = (
        "So predictions depend on the other samples of the batch, and validation moves"
        " running_mean and running_var, which nothing uses."
        if is_norm
        else "So what is measured there is that of a network with parts left out at random, and"
        " changes from call to call."
    )
    remedy = "Give it training=self.training."
    if how.startswith("made"):
        remedy = "Make it in __init__, as an attribute of the module."
    return StepFinding(
        kind="on in evaluation",
        heading=heading,
        frame=op.frame,
        paragraph=(
            f"It is called here with {_TRAINING} where gradients are off and eval() has been"
            f" called: {_HOW[how]}. {does} {remedy}"
        ),
    )


_HOW: Final = {
    "default": "its argument training is left out, and is True then",
    "constant": "its argument training is always True",
    "made": "the module is made anew in each call, in training mode, where eval() does not reach"
    " it",
}


def _why_on(trace: Trace, op: ForwardOpRow, name: str) -> str:
    """How the text of a line keeps it on, a key of ``_HOW``; empty: it is meant, or not known."""
    if op.frame is None:
        return ""
    nodes = nodes_beside(trace, op.frame)
    calls = [
        node
        for node in nodes
        if isinstance(node, ast.Call)
        and node.lineno <= op.frame.line <= (node.end_lineno or node.lineno)
    ]
    given = [_given(call, name) for call in calls if called_name(call) == name]
    if len(given) == 1:
        if given[0] is None:
            return "default"
        is_true = isinstance(given[0], ast.Constant) and given[0].value is True
        has_statistics = {"1", "2"} <= {row.place for row in op.inputs}
        return "constant" if is_true and name == _NORM and has_statistics else ""
    made = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _makes_dropout(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    is_made = any(_makes_dropout(each.func) or ast.unparse(each.func) in made for each in calls)
    return "made" if is_made and not given and name != _NORM else ""


def _given(call: ast.Call, name: str) -> ast.expr | None:
    """What a call is given as ``training``; None: nothing, where that means True."""
    place = _PLACE.get(name, 2)
    words = {word.arg: word.value for word in call.keywords}
    rest = [each for each in call.args if isinstance(each, ast.Starred)]
    if None in words or rest or name == _NORM:
        return words.get("training", call.args[place] if len(call.args) > place else call)
    return words.get("training", call.args[place] if len(call.args) > place else None)


def _makes_dropout(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and called_name(value).endswith(_ENDS_OF_CLASSES)


def _has_switched(ops: Sequence[ForwardOpRow], op: ForwardOpRow) -> bool:
    """Whether other modules were in training mode with gradients, and all are not without."""
    others = [each for each in ops if each.frame != op.frame or each.module != op.module]
    on = {each.module for each in others if each.grad_enabled and _TRAINING in each.arguments}
    now = [each for each in others if not each.grad_enabled]
    is_off = all(_TRAINING not in each.arguments for each in now)
    return is_off and any(each.module in on for each in now)


def _is_switched(trace: Trace, stack: Sequence[Frame]) -> bool:
    """Whether a function of a stack calls ``x.eval()`` before it calls ``x``."""
    for frame in stack:
        if frame.hidden:
            continue
        calls = [node for node in nodes_beside(trace, frame) if isinstance(node, ast.Call)]
        owners = {
            part
            for node in calls
            if node.lineno <= frame.line <= (node.end_lineno or node.lineno)
            for part in _prefixes(ast.unparse(node.func))
        }
        switches = [
            (node.lineno, node.func.attr)
            for node in calls
            if isinstance(node.func, ast.Attribute)
            and node.func.attr in {"eval", "train"}
            and node.lineno < frame.line
            and ast.unparse(node.func.value) in owners
        ]
        if switches and max(switches)[1] == "eval":
            return True
    return False


def _prefixes(name: str) -> Iterator[str]:
    """``a.b.c``, ``a.b`` and ``a``."""
    while name:
        yield name
        name = name.rpartition(".")[0]
