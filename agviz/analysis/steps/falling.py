"""A loss that falls below zero, faster and faster: nothing seems to bound it from below.

Note [Below zero on purpose]
The negative logarithm of a density, a policy's loss and a critic's are negative and no fault. What
has a least value falls more and more slowly towards it; so a loss is told that falls in each third
of the run at least as far as in the third before, to many times of what it was. Where several
optimizers step, one loss may be the other's opponent, which gives way for a while: it has to fall
beyond what an opponent that is held in bounds gives.
"""

from __future__ import annotations

import ast
import itertools
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import differentiated, line_at, nodes_beside, nodes_of
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
_LOW: Final = -1e3
"""So low at least the last ones are where another optimizer steps, too."""
_LAST: Final = 5
"""Losses before the first that is not finite."""
_DEEP: Final = -1e6
_FALLING: Final = 0.75
"""Share of the passes in which it falls."""
_FALLING_OPPOSED: Final = 0.6


def falling(run: RunSteps) -> Iterator[StepFinding]:
    """A loss without a least value, as of a sign that is wrong."""
    if not run.optimizers or len(run.passes) < _FEWEST:
        return
    stop = run.first_wrong
    known = [each for each in run.passes.ids if stop is None or each < stop][-_MOST:]
    is_one = len(run.optimizers) == 1
    every = [run.losses.get(each, math.nan) for each in known]
    if not (
        _falls(every) if is_one else any(loss < _LOW for loss in every)
    ):  # to ask for lines is dear
        return
    places: dict[tuple[Frame, ...], list[int]] = {}
    for task in known:
        places.setdefault(tuple(run.trace.call_site(task)[-1:]), []).append(task)
    if is_one and len(places) != 1:
        return
    for ids in places.values():
        losses = [run.losses.get(each, math.nan) for each in ids]
        if _falls(losses, is_opposed=not is_one):
            yield _fallen(run, ids, losses)
            return


def plunging(run: RunSteps) -> Iterator[StepFinding]:
    """A loss that falls below any bound within a few passes, and then is not finite."""
    if run.first_wrong is None or not run.optimizers:
        return
    ids = [each for each in run.passes.ids if each < run.first_wrong][-_MOST:]
    losses = [run.losses.get(each, math.nan) for each in ids]
    last = losses[-_LAST:]
    is_falling = all(after < before for before, after in itertools.pairwise(last))
    if len(last) == _LAST and is_falling and last[-1] < _DEEP < last[0]:
        yield _fallen(run, ids[-2 * _LAST :], losses[-2 * _LAST :])


def _fallen(run: RunSteps, ids: Sequence[int], losses: Sequence[float]) -> StepFinding:
    called = visible(run.trace.call_site(ids[-1]))
    after = {taken.graph_task: each for each in run.optimizers for taken in each.steps}
    each = after.get(ids[-1], run.optimizers[0])
    shown = ", ".join(f"{losses[place * (len(losses) - 1) // 4]:.3g}" for place in range(5))
    where = "" if called is None else f" Backward is called at {called.file}:{called.line}."
    bound = (
        ""
        if len(run.optimizers) == 1
        else " Where clipped weights or a penalty are to bound it, look whether these are of the"
        " network that this loss trains."
    )
    given = None if called is None else _given(run.trace, called)
    factor = None if given is None else _trained_elsewhere(run.trace, given)
    if factor is not None:
        name, line = factor
        return StepFinding(
            kind="falls",
            heading=f"the loss falls below 0, by a factor that line {line.line} trains",
            frame=line,
            paragraph=(
                f"Steps of {each.name} follow it down: {shown}. It is computed in line"
                f" {given.line if given else 0} and holds {name} detached, as a constant; this line"
                " trains that. If it grows without bound, each step of it makes the next one"
                " larger: look at the sign here first. A loss of alpha * (log_prob +"
                " target_entropy) needs a minus, or alpha grows where the entropy is above its"
                f" target.{where}"
            ),
            evidence=(f"in {len(losses):,} passes",),
            first_pass=run.first_wrong,
        )
    return StepFinding(
        kind="falls",
        heading=f"the loss falls below 0, faster and faster: to {number(losses[-1])}",
        frame=given or called,
        paragraph=(
            f"Steps of {each.name} follow it down: {shown}. A loss that has a least value falls"
            " more slowly the nearer it comes; nothing seems to bound this one from below. Look at"
            " its sign: what is to become large (a log-likelihood, an ELBO, a reward) needs a minus"
            " before backward, and a distance that is to grow needs a margin."
            f"{bound}{where}"
        ),
        evidence=(f"in {len(losses):,} passes",),
        first_pass=run.first_wrong,
    )


def _trained_elsewhere(trace: Trace, loss: Frame) -> tuple[str, Frame] | None:
    """What a loss holds detached, and the line of another one that trains it; None: nothing."""
    values = [node for node in nodes_beside(trace, loss) if isinstance(node, ast.Assign)]
    backward = differentiated(node for _, node in nodes_of(trace, loss.file))
    own = [node.value for node in values if node.lineno == loss.line]
    for name in sorted(set().union(*(_factors(value, is_detached=True) for value in own))):
        for node in values:
            if node.value in own or name not in _factors(node.value, is_detached=False):
                continue
            if any(ast.unparse(target) in backward for target in node.targets):
                return name, line_at(trace, loss.file, node.lineno, loss.function)
    return None


def _factors(value: ast.expr, *, is_detached: bool) -> set[str]:
    """Variables that are factors in an expression, as they are or by their methods.

    Args:
        value: the expression.
        is_detached: whether those under ``detach()`` are asked for, or the others.
    """
    found: set[str] = set()
    for product in ast.walk(value):
        if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
            continue
        for side in (product.left, product.right):
            methods, factor = set[str](), side
            while isinstance(factor, ast.Call) and isinstance(factor.func, ast.Attribute):
                methods.add(factor.func.attr)
                factor = factor.func.value
            if isinstance(factor, ast.Name) and ("detach" in methods) == is_detached:
                found.add(factor.id)
    return found


def _falls(losses: Sequence[float], *, is_opposed: bool = False) -> bool:
    """Note [Below zero on purpose].

    Args:
        losses: one of each pass.
        is_opposed: whether what another optimizer trains may make it rise.
    """
    if len(losses) < _FEWEST or not all(map(math.isfinite, losses)):
        return False
    third = len(losses) // 3
    ends = losses[0], losses[third], losses[2 * third], losses[-1]
    first, second, last = (before - after for before, after in itertools.pairwise(ends))
    if not 0 < first <= second <= last:
        return False
    few = 3 if is_opposed else max(3, len(losses) // 10)
    least = -_TIMES * max(abs(loss) for loss in losses[:few])
    share = sum(after < before for before, after in itertools.pairwise(losses)) / (len(losses) - 1)
    if is_opposed:
        return losses[-1] < min(least, _LOW) and share >= _FALLING_OPPOSED
    return losses[-1] < least and share >= _FALLING


def _given(trace: Trace, called: Frame) -> Frame | None:
    """The line before that gives a value to the variable that a line calls backward on."""
    nodes = nodes_of(trace, called.file)
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
    return line_at(trace, called.file, line, called.function)
