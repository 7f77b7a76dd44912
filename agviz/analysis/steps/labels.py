"""Losses that are given numbers of another kind than they take, as the text of the call shows."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, parsed, user_files, with_functions
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_SIGNED: Final = {
    "cosine_embedding_loss": (2, "pairs with 0 are left out"),
    "hinge_embedding_loss": (1, "those with 0 are left out"),
    "margin_ranking_loss": (2, "pairs with 0 have a loss that no step changes"),
    "soft_margin_loss": (1, "those with 0 have a loss that no step changes"),
}
"""By function: the place of labels that have to be 1 and -1, and what becomes of a 0."""
_CONVERTING: Final = frozenset({"double", "float", "int", "long", "to", "type_as"})
_SMOOTH: Final = 0.9
"""Share of the label that smoothing takes away, from which on little is left."""


def mislabelled(run: RunSteps) -> Iterator[StepFinding]:
    """The first call of a loss whose labels, or whose input, are not what it takes."""
    for file in user_files(run.trace) if run.passes else ():
        lines = run.trace.source(file)
        for function, node in with_functions(parsed(lines)):
            if not isinstance(node, ast.Call) or function not in run.running:
                continue
            said = _of_signed(node) or _of_poisson(node) or _of_smoothing(node)
            if said is None:
                continue
            heading, paragraph = said
            yield StepFinding(
                kind="labels",
                heading=heading,
                frame=line_at(run.trace, file, node.lineno, function),
                paragraph=paragraph,
            )
            return


def _of_signed(call: ast.Call) -> tuple[str, str] | None:
    """Labels of truth values, where a loss takes 1 and -1."""
    name = called_name(call)
    place, then = _SIGNED.get(name, (0, ""))
    words = {word.arg: word.value for word in call.keywords}
    given = (
        call.args[place] if len(call.args) > place > 0 else words.get("target") if place else None
    )
    if given is None or not _is_truth(given):
        return None
    return f"{name} is given labels of 0 and 1: it takes -1 and 1", (
        f"{ast.unparse(given)} is 0 where the condition is false, and {name} is made for -1 there:"
        f" {then}. Give it 2 * y - 1, or torch.where(condition, 1.0, -1.0)."
    )


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression is a comparison, or one as numbers."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in _CONVERTING:
            return False
        node = node.func.value
    return isinstance(node, ast.Compare)


def _of_poisson(call: ast.Call) -> tuple[str, str] | None:
    """Rates, where ``poisson_nll_loss`` takes logarithms of rates unless it is asked not to."""
    words = {word.arg: word.value for word in call.keywords}
    if called_name(call) != "poisson_nll_loss" or "log_input" in words or len(call.args) > 2:
        return None
    given = call.args[0] if call.args else words.get("input")
    if not isinstance(given, ast.Call) or called_name(given) not in {"exp", "softplus"}:
        return None
    return "poisson_nll_loss is given rates: it takes their logarithms", (
        f"{ast.unparse(given)} is positive, as a rate is, and poisson_nll_loss takes the"
        " exponential of its input once more (log_input=True is its default): predictions are those"
        " of another model, and large ones overflow. Leave the function out, or say"
        " log_input=False."
    )


def _of_smoothing(call: ast.Call) -> tuple[str, str] | None:
    """Labels that are smoothed until nothing is left of them."""
    words = {word.arg: word.value for word in call.keywords}
    given = words.get("label_smoothing")
    if not isinstance(given, ast.Constant) or not isinstance(given.value, int | float):
        return None
    if not given.value >= _SMOOTH:
        return None
    return f"label_smoothing={given.value:g} leaves next to nothing of the labels", (
        f"It takes {given.value:.0%} of each label away and spreads it over all classes: what is"
        " left to be learnt is that all classes are equally likely. 0.1 is usual."
    )
