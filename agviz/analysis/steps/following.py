"""Steps that follow a pass which was made to look at gradients, and not that of the loss.

Note [Following another]
Two lines call backward before a step. What the first gave is cleared, and the step finds what the
second gave alone. An attack does so, too: there the first pass is for the gradient of an input, and
the second for the step. Here it is the second that leads to a leaf which no optimizer holds, or
whose function reads ``.grad`` afterwards and does not step; the first leads to nothing but what the
second leads to as well, all of one optimizer. And what the first gave is of no other use: in none
of the program's files does a function that ran read ``.grad``, but after the second pass.
"""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import line_at, nodes_of, user_files
from agviz.analysis.steps.discarding import is_alone
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import calls, is_clear
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping, TakenStep
    from agviz.traces.rows import Frame, GraphTaskRow

_LEAST: Final = 3
"""Steps, and half of those that are looked at."""
_STEPS: Final = 9
_MOST_PASSES: Final = 64
"""Before a step."""
_CLEARING: Final = frozenset({"detach_", "zero_"})
"""What is called of a gradient to clear it."""


class _Two(NamedTuple):
    """The last passes of two lines before a step."""

    cleared: GraphTaskRow
    followed: GraphTaskRow


def follows_another(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that follow a pass that looks at gradients. Note [Following another]."""
    if run.trace.collectives():
        return
    for each in run.optimizers:
        if each.name == "LBFGS" or each.is_moved_beside:
            continue
        pairs = list(itertools.pairwise(each.steps[: _STEPS + 1]))
        led = [(taken, _two(run, each, last, taken)) for last, taken in pairs]
        several = [(taken, two) for taken, two in led if two is not None]
        if len(several) < max(_LEAST, len(pairs) / 2):
            continue
        two = several[0][1]
        first = run.trace.call_site(two.cleared.id)
        inside = _from_fork(first, run.trace.call_site(two.followed.id))
        line, other = visible(first), visible(inside)
        if line is None or other is None or not all(is_alone(run, *one) for one in several):
            continue
        reads = list(_reads(run))
        after = [read for read in reads if any(_is_after(read, frame) for frame in inside)]
        leads_elsewhere = not _names(run, two.followed) <= _held(run)
        steps = {(frame.file, frame.function) for frame in each.optimizer.stepped}
        is_helper = (other.file, other.function) not in steps
        if not after or len(after) < len(reads) or not (leads_elsewhere or is_helper):
            continue
        yield _finding(run, each, (line, other), inside[0], (len(several), len(pairs)))


def _finding(
    run: RunSteps, each: Stepping, lines: tuple[Frame, Frame], fork: Frame, steps: tuple[int, int]
) -> StepFinding:
    line, other = lines
    begin = line.line if (line.file, line.function) == (other.file, other.function) else 0
    cleared = [
        one
        for one in calls(run.trace, other, is_clear)
        if one.function == other.function and begin < one.line < other.line
    ]
    at = f" (line {cleared[0].line})" if len(cleared) == 1 else ""
    return StepFinding(
        kind="follows another",
        heading=(
            f"{each.name} follows the backward pass of line {other.line}, not that of line"
            f" {line.line}"
        ),
        frame=fork,
        paragraph=(
            f"At {steps[0]} of {steps[1]} steps that were looked at, what backward of line"
            f" {line.line} gave was cleared{at} before anything read it, and the norms of .grad"
            f" were those of the pass of line {other.line} alone, whose gradients the program looks"
            f" at. Compute these with torch.autograd.grad, which leaves .grad as it is, or after"
            " the step."
        ),
    )


def _two(run: RunSteps, each: Stepping, last: TakenStep, taken: TakenStep) -> _Two | None:
    """The passes before a step, of which the last may be all that it follows; None: others."""
    between = run.passes_between(last, taken)
    if not 2 <= len(between) <= _MOST_PASSES:
        return None
    held = {row.name for row in each.held if row.name}
    found = [task for task in between if held & run.arrived(task).keys()]
    lines = [visible(run.trace.call_site(task.id)) for task in found]
    turns = [line for line, _ in itertools.groupby(lines)]
    if len(turns) != 2 or any(task.create_graph or task.error for task in found):
        return None
    steps = (step.graph_task for other in run.optimizers for step in other.steps)
    if any(found[0].id <= step < found[-1].id for step in steps):
        return None
    before = found[: lines.index(turns[1])]
    for task in before:
        names = _names(run, task)
        leaves = {row.node for row in run.norms(task)}
        is_hooked = any(call.node in leaves for call in run.trace.hook_calls(task.id))
        if is_hooked or not names <= held & _names(run, found[-1]):
            return None
    return _Two(before[-1], found[-1])


def _names(run: RunSteps, task: GraphTaskRow) -> set[str]:
    """Of the leaves that a pass leads to; empty: of those that have none."""
    return {row.parameter for row in run.norms(task)}


def _held(run: RunSteps) -> set[str]:
    return {row.name for each in run.optimizers for row in each.held if row.name}


def _from_fork(first: Sequence[Frame], second: Sequence[Frame]) -> list[Frame]:
    """The user's frames of the second stack from where it leaves the first."""
    shared = itertools.takewhile(lambda both: both[0] == both[1], zip(first, second, strict=False))
    return [frame for frame in second[sum(1 for _ in shared) :] if not frame.hidden]


def _is_after(read: Frame, frame: Frame) -> bool:
    same = (read.file, read.function) == (frame.file, frame.function)
    return same and read.line > frame.line


def _reads(run: RunSteps) -> Iterator[Frame]:
    """Where functions that ran read ``.grad``, but to clear it or to compare it with None."""
    for file in user_files(run.trace):
        nodes = [(name, node) for name, node in nodes_of(run.trace, file) if name in run.running]
        others = {id(part) for _, node in nodes if (part := _not_read(node)) is not None}
        for function, node in nodes:
            if (
                isinstance(node, ast.Attribute)
                and node.attr == "grad"
                and isinstance(node.ctx, ast.Load)
                and id(node) not in others
            ):
                yield line_at(run.trace, file, node.lineno, function)


def _not_read(node: ast.AST) -> ast.expr | None:
    """What of an expression is called, compared or cleared, and so not read as a gradient."""
    match node:
        case ast.Call(func=part) | ast.Compare(left=part, ops=[ast.Is() | ast.IsNot()]):
            return part
        case ast.Attribute(attr=name, value=part) if name in _CLEARING:
            return part
    return None
