"""Samples whose scale is the logarithm of one, by how the program names it.

Note [Named logarithms]
``logvar``, ``log_std`` and the like are what a network gives because a scale has to be above 0: it
is ``exp`` that makes a scale of it. Noise that is multiplied by the name itself, or a Normal that
is given it for its scale, is of another width, and of the other sign below 0. A name that is given
what ``exp`` or ``softplus`` gives is left alone.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, own_name
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps

_LOGARITHM: Final = re.compile(r"(?:.*_)?(?:log|ln)_?(?:var|variance|std|stddev|sigma|scale)s?$")
_NOISE: Final = re.compile(r"eps|eps_|epsilon|noise|xi|z0")
_DRAWS: Final = frozenset({"normal", "randn", "randn_like"})
_DISTRIBUTIONS: Final = frozenset({"Laplace", "LogNormal", "Normal"})
_POSITIVE: Final = ("exp", "softplus", "sqrt", "sigmoid")


def log_for_scale(run: RunSteps) -> Iterator[StepFinding]:
    """Noise that is multiplied by the logarithm of its scale. Note [Named logarithms]."""
    for file, function, statement in run.statements() if run.optimizers else ():
        if not isinstance(statement, ast.Assign | ast.Return | ast.Expr):
            continue
        for node in ast.walk(statement):
            scale = _scale(node)
            if scale is None or not _LOGARITHM.match(own_name(scale).lower()):
                continue
            given = [each for each in run.given_names.given(scale) if each is not None]
            if any(word in ast.unparse(each) for each in given for word in _POSITIVE):
                continue
            name = own_name(scale)
            half = "(0.5 * {}).exp()" if "var" in name.lower() else "{}.exp()"
            yield StepFinding(
                kind="log for scale",
                heading=f"noise is scaled by {name}, by its name the logarithm of a scale",
                frame=line_at(run.trace, file, node.lineno, function),  # type: ignore[attr-defined]
                paragraph=(
                    "A network gives the logarithm because a scale has to be above 0; multiplied"
                    " by that itself, noise is narrow where it is near 0, wide where it is far"
                    " below, and what else is computed of it (a KL divergence, a density) means"
                    f" another width. Use {half.format(ast.unparse(scale))}."
                ),
            )
            return


def _scale(node: ast.AST) -> ast.expr | None:
    """What noise is multiplied by, or a distribution has for its scale; None: nothing is."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            for noise, scale in ((left, right), (right, left)):
                if _is_noise(noise) and isinstance(scale, ast.Name | ast.Attribute):
                    return scale
        case ast.Call(args=[_, scale]) if called_name(node) in _DISTRIBUTIONS:
            return scale
    return None


def _is_noise(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return called_name(node) in _DRAWS
    return isinstance(node, ast.Name) and bool(_NOISE.fullmatch(node.id))
