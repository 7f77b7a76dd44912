"""A loss that falls below zero, faster and faster: nothing seems to bound it from below.

Note [Below zero on purpose]
The negative logarithm of a density, a policy's loss and a critic's are negative and no fault. What
has a least value falls more and more slowly towards it; so a loss is told that falls in each third
of the run at least as far as in the third before, to many times of what it was. Where several
optimizers step, or several lines call backward, one loss may be the other's opponent.
"""

from __future__ import annotations

import ast
import itertools
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import parsed, with_functions
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.traces.rows import Frame, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace

_FEWEST: Final = 12
_MOST: Final = 1_000
"""Passes looked at, the last ones."""
_TIMES: Final = 100.0
"""Of the largest loss of the first passes: so low the last ones are."""
_FALLING: Final = 0.75
"""Share of the passes in which it falls."""


def falling(run: RunSteps) -> Iterator[StepFinding]:
    """A loss without a least value, as of a sign that is wrong."""
    if len(run.optimizers) != 1 or len(run.passes) < _FEWEST:
        return
    stop = run.first_wrong
    ids = [each for each in run.passes.ids if stop is None or each < stop][-_MOST:]
    losses = [run.losses.get(each, math.nan) for each in ids]
    if not _falls(losses):  # to ask for lines is dear
        return
    places = {run.trace.call_site(each)[-1:] for each in ids}
    if len(places) != 1:
        return
    called = visible(run.trace.call_site(ids[-1]))
    each = run.optimizers[0]
    shown = ", ".join(f"{losses[place * (len(losses) - 1) // 4]:.3g}" for place in range(5))
    where = "" if called is None else f" Backward is called at {called.file}:{called.line}."
    yield StepFinding(
        kind="falls",
        heading=f"the loss falls below 0, faster and faster: to {number(losses[-1])}",
        frame=(None if called is None else _given(run.trace, called)) or called,
        paragraph=(
            f"Steps of {each.name} follow it down: {shown}. A loss that has a least value falls"
            " more slowly the nearer it comes; nothing seems to bound this one from below. Look at"
            " its sign: what is to become large (a log-likelihood, an ELBO, a reward) needs a minus"
            " before backward, and a distance that is to grow needs a margin."
            f"{where}"
        ),
        evidence=(f"in {len(losses):,} passes",),
        first_pass=stop,
    )


def _falls(losses: Sequence[float]) -> bool:
    """Note [Below zero on purpose]."""
    if len(losses) < _FEWEST or not all(map(math.isfinite, losses)):
        return False
    third = len(losses) // 3
    ends = losses[0], losses[third], losses[2 * third], losses[-1]
    first, second, last = (before - after for before, after in itertools.pairwise(ends))
    if not 0 < first <= second <= last:
        return False
    began = max(abs(loss) for loss in losses[: max(3, len(losses) // 10)])
    falls = sum(after < before for before, after in itertools.pairwise(losses))
    return losses[-1] < -_TIMES * began and falls >= _FALLING * (len(losses) - 1)


def _given(trace: Trace, called: Frame) -> Frame | None:
    """The line before that gives a value to the variable that a line calls backward on."""
    lines = trace.source(called.file)
    nodes = list(with_functions(parsed(lines)))
    names = {
        node.func.value.id
        for _, node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.attr, node.lineno) == ("backward", called.line)
    }
    found = [
        node.lineno
        for function, node in nodes
        if isinstance(node, ast.Assign)
        and function == called.function
        and node.lineno < called.line
        and any(isinstance(target, ast.Name) and target.id in names for target in node.targets)
    ]
    if not found:
        return None
    line = max(found)
    return Frame(called.file, line, called.function, False, lines[line - 1].strip())
