"""ReduceLROnPlateau that takes what becomes better for what becomes worse.

Note [Which way is better]
Its mode is 'min' unless another is given: what it is stepped with has to fall. An accuracy rises,
so that each epoch counts as a bad one. What a number is, its name tells; that it went wrong, the
learning rate, which was lowered.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    bindings,
    called_name,
    line_at,
    nodes_of,
    own_name,
    user_files,
)
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_RISING: Final = re.compile(
    r"(?:.*_)?(?:acc|accs|accuracy|auc|auroc|f1|iou|miou|map|recall|precision|reward|rewards|score"
    r"|psnr|ssim|bleu|dice|hits)(?:_.*)?$",
    re.IGNORECASE,
)
_FALLING: Final = re.compile(
    r"(?:.*_)?(?:loss|losses|error|err|rmse|mse|mae|nll|perplexity|ppl|fid|kid|wer|cer|distance)"
    r"(?:_.*)?$",
    re.IGNORECASE,
)
_LOWERED: Final = 0.5


def wrong_way(run: RunSteps) -> Iterator[StepFinding]:
    """A mode that does not fit what is given. Note [Which way is better]."""
    rates = [taken.fact.most_rate or 0.0 for each in run.optimizers for taken in each.steps]
    if not rates or not min(rates) <= _LOWERED * max(rates):
        return
    for file in user_files(run.trace):
        nodes = nodes_of(run.trace, file)
        made = {
            ast.unparse(target): (_mode(value), line_at(run.trace, file, node.lineno, function))
            for function, node in nodes
            if isinstance(node, ast.Assign)
            for target, value in bindings(node)
            if isinstance(value, ast.Call) and called_name(value) == "ReduceLROnPlateau"
        }
        for function, node in nodes if made else ():
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr="step"), args=[given, *_]):
                    mode, line = made.get(ast.unparse(owner), ("", None))
                    name = _what(given)
                    wrong = {"min": _RISING, "max": _FALLING}.get(mode)
                    is_both = _RISING.match(name) and _FALLING.match(name)  # as fid_score
                    if wrong is None or is_both or not wrong.match(name):
                        continue
                    if function not in run.running:
                        continue
                    better, other = ("rises", "max") if mode == "min" else ("falls", "min")
                    yield StepFinding(
                        kind="wrong way",
                        heading=f"ReduceLROnPlateau has mode '{mode}', and is given {name}",
                        frame=line,
                        paragraph=(
                            f"{name} (line {node.lineno}) {better} as training gets better,"
                            " which this mode takes for getting worse: the learning rate went from"
                            f" {number(max(rates))} down to {number(min(rates))}. Make it with"
                            f" mode='{other}'."
                        ),
                    )
                    return


def _mode(made: ast.Call) -> str:
    """The mode that a scheduler is made with; empty: it is not known."""
    by_word = {word.arg: word.value for word in made.keywords}
    given = by_word.get("mode", made.args[1] if len(made.args) > 1 else None)
    if given is None:
        return "" if None in by_word else "min"
    return str(given.value) if isinstance(given, ast.Constant) else ""


def _what(given: ast.expr) -> str:
    """The name of a number, or of the function that gives it."""
    match given:
        case ast.Call(func=ast.Attribute(value=inner, attr="item" | "mean")):
            return _what(inner)
        case ast.Call():
            return called_name(given)
    return own_name(given)
