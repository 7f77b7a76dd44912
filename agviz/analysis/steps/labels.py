"""Losses that are given labels, or other numbers, of another kind than they take.

The text of a call shows it, or the gradient: in a hinge, max(0, 1 - y * score), labels of 1 and -1
let all of it through that the bound lets through, and those of 0 nothing.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_of, user_files
from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_SIGNED: Final = {
    "cosine_embedding_loss": (2, "pairs with 0 are left out"),
    "hinge_embedding_loss": (1, "those with 0 are left out"),
    "margin_ranking_loss": (2, "pairs with 0 have a loss that no step changes"),
    "soft_margin_loss": (1, "those with 0 have a loss that no step changes"),
}
"""By function: the place of labels that have to be 1 and -1, and what becomes of a 0."""
_CONVERTING: Final = frozenset({"double", "float", "int", "long", "to", "type_as"})
_PASSES: Final = 3
_MOST_NODES: Final = 20_000
_BOUNDS: Final = frozenset({"Clamp", "ClampMin", "Relu"})
_SHARE: Final = 0.1
"""Of the numbers of a gradient, that become 0 there."""
_SMOOTH: Final = 0.9
"""Share of the label that smoothing takes away, from which on little is left."""


def of_hinge(run: RunSteps) -> Iterator[StepFinding]:
    """A hinge whose product with the labels takes out a part of the gradient in each pass."""
    last = run.passes[-_PASSES:] if len(run.passes) >= _PASSES else ()
    found = [None if task.nodes > _MOST_NODES else _hinge(run, task.id) for task in last]
    shares = [each for each in found if each is not None]
    if len(shares) < _PASSES or len({frame for frame, _ in shares}) > 1:
        return
    frame, share = shares[-1]
    yield StepFinding(
        kind="labels",
        heading="a hinge is given labels of 0: it takes -1 and 1",
        frame=frame,
        paragraph=(
            f"Behind the bound of max(0, 1 - y * score) the gradient of {share:.0%} of the samples"
            " becomes 0 by the product with y: y is 0 there. Their loss is 1, whatever the score"
            " is, and they train nothing. Give it 2 * y - 1 in place of labels of 0 and 1."
        ),
    )


def _hinge(run: RunSteps, graph_task: int) -> tuple[Frame, float] | None:
    """The line of a hinge, and the share of its gradient that labels of 0 take out."""
    flow = GradientFlow(run.trace, graph_task)
    names = [base_name(node.name) for node in flow.nodes]
    for node in flow.nodes:
        leading = [slot for slot, shape in enumerate(node.output_shapes) if shape is not None]
        if names[node.index] != "Mul" or node.frame is None or len(leading) != 1:
            continue
        behind = [edge.producer for edge in flow.edges_into(node.index)]
        if len(behind) != 1 or names[behind[0]] != "Rsub":
            continue
        bounds = [names[edge.producer] for edge in flow.edges_into(behind[0])]
        _, given = flow.input(node.index, 0)
        _, gave = flow.output(node.index, leading[0])
        if given is None or gave is None or not _BOUNDS.issuperset(bounds) or not bounds:
            continue
        share = (gave.zero - given.zero) / gave.numbers if gave.numbers else 0.0
        if share >= _SHARE and given.numbers == gave.numbers:
            return node.frame, share
    return None


def mislabelled(run: RunSteps) -> Iterator[StepFinding]:
    """The first call of a loss whose labels, or whose input, are not what it takes."""
    for file in user_files(run.trace) if run.passes else ():
        for function, node in nodes_of(run.trace, file):
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
