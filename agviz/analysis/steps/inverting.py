"""Optimizers that step after all but each Nth pass, by a condition that is the wrong way round.

Note [All but each Nth]
``if step % n:`` is true for all but each nth step, where ``== 0`` was meant. The passes that no
step follows come one at a time, fewer than the others, mostly as far from each other; they are of
the same line as the others, which the condition is not around, and no other optimizer steps after
them. What is done instead of a step, as by an ``else``, may be meant. With n = 2 either half will
do.
"""

from __future__ import annotations

import ast
import itertools
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, nodes_beside
from agviz.analysis.steps.finding import StepFinding
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame

_LEAST: Final = 3
"""Passes that no step follows."""
_LEAST_PERIOD: Final = 3
_MOST_PASSES: Final = 1_000
"""Which are looked at, the first ones."""


def inverted(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that leave out each Nth pass. Note [All but each Nth]."""
    for each in run.optimizers:
        passes = _of_one_line(run, each)
        ends = [taken.graph_task for taken in each.steps]
        left = [
            place
            for place, task in enumerate(passes[:-1])
            if bisect_left(ends, task) == bisect_left(ends, passes[place + 1])
        ]
        apart = [after - before for before, after in itertools.pairwise(left)]
        if len(left) < _LEAST or min(apart) < 2:
            continue
        period, times = Counter(apart).most_common(1)[0]
        if period < _LEAST_PERIOD or times * 2 < len(apart) or len(left) * 2 >= len(passes):
            continue
        if _is_stepped_by_another(run, each, [passes[place] for place in left]):
            continue
        condition = _condition(run, each, visible(run.trace.call_site(passes[-1])))
        if condition is None:
            continue
        frame, test = condition
        yield StepFinding(
            kind="inverted",
            heading=f"{each.name} steps after all passes but each {_th(period)}",
            frame=frame,
            paragraph=(
                f"Of the first {len(passes):,} backward passes of one line, {len(left):,} are"
                f" followed by no step, one in {period} (the first is pass {passes[left[0]]}); each"
                f" other one is. The condition {test} decides that, and seems to be the wrong way"
                f" round: gradients are not added up over {period} passes. To step once in"
                f" {period} passes, step where the remainder is 0: if (step + 1) % {period} == 0."
            ),
        )


def _th(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number // 10 % 10 == 1 else ends.get(number % 10, 'th')}"


def _of_one_line(run: RunSteps, each: Stepping) -> list[int]:
    """The passes from the first step to the last one, of the line that called the first of them."""
    first, last = each.steps[0].graph_task, each.steps[-1].graph_task
    line = visible(run.trace.call_site(first)) if first >= 0 else None
    ids = run.passes.ids
    between = ids[bisect_left(ids, first) : bisect_left(ids, last + 1)][:_MOST_PASSES]
    return [
        task for task in between if line is not None and visible(run.trace.call_site(task)) == line
    ]


def _is_stepped_by_another(run: RunSteps, each: Stepping, left: Sequence[int]) -> bool:
    """Whether another optimizer steps right after passes that this one leaves out."""
    others = {
        taken.graph_task
        for other in run.optimizers
        if other.optimizer.number != each.optimizer.number
        for taken in other.steps
    }
    return not others.isdisjoint(left)


def _condition(run: RunSteps, each: Stepping, called: Frame | None) -> tuple[Frame, str] | None:
    """The ``if`` with a remainder that decides whether a step is made, and how it is written."""
    for frame in each.optimizer.stepped:
        if frame.hidden:
            continue
        for node in nodes_beside(run.trace, frame):
            if not isinstance(node, ast.If) or node.orelse:
                continue
            body = range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
            is_around = frame.line in body
            leaves = isinstance(node.body[-1], ast.Continue | ast.Return) and (
                node.lineno < frame.line and not is_around and len(node.body) == 1
            )
            is_backward_in = called is not None and called.file == frame.file
            is_backward_in = is_backward_in and called is not None and called.line in body
            has_remainder = any(isinstance(part, ast.Mod) for part in ast.walk(node.test))
            if has_remainder and (is_around or leaves) and not is_backward_in:
                at = line_at(run.trace, frame.file, node.lineno, frame.function)
                return at, ast.unparse(node.test)
    return None
