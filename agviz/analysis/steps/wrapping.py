"""Functions that are wrapped again and again, so that each call of them takes longer.

Note [Wrapped again]
What each pass computes stays the same: only the stacks of its nodes get deeper, by one function of
the program that is inside of itself once more. So does no recursion that is meant: the text of that
calls itself by name, or its depth follows the data, up and down. Where the graph grows with the
depth, a network may be grown layer by layer, and :mod:`agviz.analysis.graph_growth` is asked.
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import calls_itself, line_at, own_name, tree_of
from agviz.analysis.steps.finding import StepFinding
from agviz.traces.rows import Frame, visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import GraphTaskRow, NodeRow

_LEAST_RISES: Final = 3
_LOOKS: Final = 8
"""Passes of a line that are looked at besides the first."""
_MOST_NODES: Final = 20_000
"""A larger graph is not read."""


class _Called(NamedTuple):
    """A function of the program."""

    file: str
    function: str


def wrapped_again(run: RunSteps) -> Iterator[StepFinding]:
    """Functions that are in themselves more often from pass to pass. Note [Wrapped again]."""
    by_line: dict[Frame | None, list[GraphTaskRow]] = {}
    for task in run.passes:
        if task.nodes <= _MOST_NODES and not task.traced:
            by_line.setdefault(visible(run.trace.call_site(task.id)), []).append(task)
    found = filter(None, (_deeper(run, tasks) for tasks in by_line.values()))
    yield from itertools.islice(found, 1)


def _deeper(run: RunSteps, tasks: Sequence[GraphTaskRow]) -> StepFinding | None:
    first, last = tasks[0], tasks[-1]
    if len(tasks) <= _LEAST_RISES:
        return None
    depths = [_depths(run.trace.nodes(task.id)) for task in (first, last)]
    risen = (depths[1] - depths[0]).most_common(1)
    if not risen or risen[0][1] < max(_LEAST_RISES, last.nodes - first.nodes + 1):
        return None
    called = risen[0][0]
    places = sorted({len(tasks) * turn // _LOOKS for turn in range(1, _LOOKS)} - {0})
    between = [_depths(run.trace.nodes(tasks[place].id))[called] for place in places]
    all_depths = [depths[0][called], *between, depths[1][called]]
    rises = [after - before for before, after in itertools.pairwise(all_depths)]
    frame = _innermost(run.trace.nodes(last.id), called)
    if (
        min(rises) < 0
        or sum(rise > 0 for rise in rises) < _LEAST_RISES
        or not any(rises[len(rises) // 2 :])
        or calls_itself(run.trace, frame)
    ):
        return None
    wraps = _wrapping(run, frame)
    at = "" if wraps is None else f" (line {frame.line})"
    return StepFinding(
        kind="wrapped again",
        heading=(
            f"calls pile up: one stack has {called.function} {plural(all_depths[0], 'time')} in"
            f" pass {first.id}, {plural(all_depths[-1], 'time')} in pass {last.id}"
        ),
        frame=wraps or frame,
        paragraph=(
            f"The graph hardly grows, but in the stacks of its nodes {called.function}{at} is"
            " inside of itself more and more often: something wraps what is wrapped already. So"
            " each forward is slower than those before, until the recursion limit ends the"
            " program. Wrap it once, before the loop, or keep the original and wrap that."
        ),
        evidence=tuple(
            f"pass {tasks[place].id}: {depth} calls of {called.function} in one stack"
            for place, depth in zip([0, *places, -1], all_depths, strict=True)
        ),
    )


def _depths(nodes: Sequence[NodeRow]) -> Counter[_Called]:
    """Of each function of the program, how often it is in one stack at most."""
    most: Counter[_Called] = Counter()
    for stack in {node.stack for node in nodes}:
        most |= Counter(_Called(each.file, each.function) for each in stack if not each.hidden)
    return most


def _innermost(nodes: Sequence[NodeRow], called: _Called) -> Frame:
    """A line of a function, where it calls itself if its stacks have it most often there."""
    lines = Counter(
        frame
        for stack in {node.stack for node in nodes}
        for frame in stack
        if (frame.file, frame.function, frame.hidden) == (*called, False)
    )
    return lines.most_common(1)[0][0]


def _wrapping(run: RunSteps, frame: Frame) -> Frame | None:
    """The one line that puts a function, or what makes it, in the place of something."""
    makers = _makers(run, frame)
    found = {
        (file, node.lineno, function)
        for file, function, node in run.statements()
        if _puts(node, makers)
    }
    return line_at(run.trace, *found.pop()) if len(found) == 1 else None


def _makers(run: RunSteps, frame: Frame) -> set[str]:
    """A function's name, those of the functions that define it, and of the class it is of."""
    around = [
        node
        for node in ast.walk(tree_of(run.trace, frame.file))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.lineno <= frame.line <= (node.end_lineno or 0)
    ]
    around.sort(key=lambda node: -node.lineno)
    functions = list(itertools.takewhile(lambda node: isinstance(node, ast.FunctionDef), around))
    if len(functions) == 1:  # a method: to wrap is to make one of its class
        functions += around[1:2]
    return {frame.function, *(node.name for node in functions)} - {"__call__", "forward"}


def _puts(statement: ast.stmt, makers: set[str]) -> bool:
    """Whether a statement assigns what is made so to an attribute, or over what it is given."""
    target: ast.expr | None = None
    match statement:
        case ast.Assign(targets=[target], value=value):
            pass
        case ast.Expr(value=ast.Call(func=ast.Name(id="setattr"), args=[_, _, value])):
            pass
        case _:
            return False
    names = {own_name(node) for node in ast.walk(value) if isinstance(node, ast.expr)}
    return not makers.isdisjoint(names) and (not isinstance(target, ast.Name) or target.id in names)
