"""Roles that are exchanged: the generator's with the discriminator's, the near with the far.

Note [Same term twice]
A discriminator is trained on samples that are detached, and the generator, on the same samples with
their graph, for the opposite. Where both losses have the very same term, but for the detach, the
generator is trained to be found out.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_of, own_name, user_files
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.signs import terms_of_losses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.analysis.steps.run import RunSteps

_DETACH: Final = ".detach()"
_MOST_DEEP: Final = 4
_TRIPLETS: Final = frozenset({"TripletMarginLoss", "TripletMarginWithDistanceLoss"})
_NEAR: Final = re.compile(r"(?:.*_)?(?:p|pos|positives?|same)(?:_.*)?$")
_FAR: Final = re.compile(r"(?:.*_)?(?:n|neg|negatives?|other|different)(?:_.*)?$")


def for_the_other(run: RunSteps) -> Iterator[StepFinding]:
    """A generator that is trained as the discriminator is. Note [Same term twice]."""
    if len(run.optimizers) < 2:
        return
    terms = [
        (file, term, _written(term.value, term.single)) for file, _, term in terms_of_losses(run)
    ]
    for _, cut, text in terms:
        if text.count(_DETACH) != 1:
            continue
        for file, term, other in terms:
            if (term.sign, other) != (cut.sign, text.replace(_DETACH, "")):
                continue
            yield StepFinding(
                kind="for the other",
                heading="the generator is trained on the discriminator's own term of the loss",
                frame=line_at(run.trace, file, term.value.lineno, term.function),
                paragraph=(
                    f"{ast.unparse(term.value)} is what the discriminator makes smaller, too, of"
                    " the same samples detached: it learns to know them, and the generator, to be"
                    " known. Give the generator the opposite: the labels of real samples, or the"
                    " other sign."
                ),
            )
            return


def _written(value: ast.expr, single: Mapping[str, ast.expr]) -> str:
    """An expression, with variables that have one value replaced by that."""
    for _ in range(_MOST_DEEP):
        value = _Replacing(single).visit(ast.parse(ast.unparse(value), mode="eval").body)
    return ast.unparse(value)


class _Replacing(ast.NodeTransformer):
    def __init__(self, single: Mapping[str, ast.expr]) -> None:
        self._single = single

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._single.get(node.id, node)


def far_for_near(run: RunSteps) -> Iterator[StepFinding]:
    """Triplets that are given with the negative before the positive, by their names."""
    for file in user_files(run.trace) if run.optimizers else ():
        nodes = nodes_of(run.trace, file)
        made = {
            ast.unparse(target)
            for _, node in nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and called_name(node.value) in _TRIPLETS
            for target in node.targets
        }
        for function, node in nodes:
            if not isinstance(node, ast.Call) or function not in run.running:
                continue
            is_triplet = (
                called_name(node) == "triplet_margin_loss" or ast.unparse(node.func) in made
            )
            if not is_triplet or len(node.args) < 3:
                continue
            second, third = (own_name(each) for each in node.args[1:3])
            if _FAR.match(second) and _NEAR.match(third):
                yield StepFinding(
                    kind="far for near",
                    heading=f"the loss is given {second} for positive, {third} for negative",
                    frame=line_at(run.trace, file, node.lineno, function),
                    paragraph=(
                        "A triplet loss takes anchor, positive, negative: by the names, the anchor"
                        f" is pulled to {second}, and pushed away from {third}. Exchange the two."
                    ),
                )
                return
