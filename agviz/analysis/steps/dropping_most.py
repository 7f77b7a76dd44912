"""Dropout that leaves next to nothing: torch takes the share that is dropped."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    called_name,
    line_at,
    nodes_of,
    own_name,
    tree_of,
    user_files,
    values_named,
)
from agviz.analysis.measures import number
from agviz.analysis.steps.dropping import DROPS
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from agviz.analysis.steps.run import RunSteps

_DROPOUTS: Final = frozenset(
    {"AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"}
)
_MOST: Final = 0.8


def heavy_dropout(run: RunSteps) -> StepFinding | None:
    """A dropout written with a share above 0.8, below 1; None: there is none. It may be meant.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for file in user_files(run.trace) if run.optimizers else ():
        for function, node in nodes_of(run.trace, file):
            if not isinstance(node, ast.Call) or called_name(node) not in _DROPOUTS | DROPS:
                continue
            share = _share(node, tree_of(run.trace, file)) if function in run.running else math.nan
            if not _MOST < share < 1:
                continue
            return StepFinding(
                kind="heavy dropout",
                heading=f"dropout of {number(share)} leaves {number(1 - share)} of what it gets",
                frame=line_at(run.trace, file, node.lineno, function),
                paragraph=(
                    "torch takes the share that is dropped, not the one that is kept; what is left"
                    f" is multiplied by {number(1 / (1 - share))}, so that outputs and gradients"
                    f" scatter widely from step to step. If {number(share)} is to be kept, give it"
                    f" {number(1 - share)}. If so much is to be dropped, all is well."
                ),
            )
    return None


def _share(call: ast.Call, tree: ast.Module) -> float:
    """The number that a dropout is given; NaN: it is none, or not known."""
    place = 0 if called_name(call) in _DROPOUTS else 1
    by_word = {word.arg: word.value for word in call.keywords}
    given = by_word.get("p", call.args[place] if len(call.args) > place else None)
    if isinstance(given, ast.Constant):
        return float(given.value) if isinstance(given.value, float) else math.nan
    found = set(values_named(tree, own_name(given))) if given is not None else set()
    return found.pop() if len(found) == 1 else math.nan
