"""Terms of the loss whose weight is 0 in all passes, because whole numbers were divided.

Note [Divided to 0]
A weight of 0 may be meant: a term that is switched off. It is not where its value comes of ``//``,
as ``step // warmup``, and is 0 from the first pass to the last.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, nodes_beside
from agviz.analysis.gradient_flow import GradientFlow, GradientValue
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_LEAST: Final = 10
"""Passes."""
_MOST_NODES: Final = 20_000


def weightless(run: RunSteps) -> Iterator[StepFinding]:
    """The first term of a loss that is multiplied by such a 0. Note [Divided to 0]."""
    tasks = list(run.passes)
    if len(tasks) < _LEAST or not run.optimizers:
        return
    looked_at = [tasks[len(tasks) - 1 - place * (len(tasks) - 1) // 3] for place in range(4)]
    if any(task.nodes > _MOST_NODES for task in looked_at):
        return
    common = set.intersection(*({*_zeroed(run, task.id)} for task in looked_at))
    for frame in sorted(common):
        found = _divided(run, frame)
        if found is None:
            continue
        name, line = found
        yield StepFinding(
            kind="weight 0",
            heading=f"{name} is 0 in each pass, and so is what it weighs",
            frame=frame if line is None else line,
            paragraph=(
                f"{frame} multiplies a term of the loss by {name}, and the gradient behind it was"
                f" 0 in the first pass, in the last of {len(tasks):,}, and in between. Its value"
                " is worked out by //, which gives whole numbers: 0 until what is divided reaches"
                " the divisor. Divide by /."
            ),
        )
        return


def _zeroed(run: RunSteps, graph_task: int) -> Iterator[Frame]:
    """The lines of products of one number behind which a gradient that came is zero."""
    flow = GradientFlow(run.trace, graph_task)
    for node in flow.nodes:
        if not node.name.startswith("MulBackward") or node.input_shapes != ((),):
            continue
        given, _ = flow.input(node.index, 0)
        gave = [flow.output(node.index, slot)[0] for slot in range(len(node.output_shapes))]
        is_zero = GradientValue.ZERO in gave and GradientValue.SOME not in gave
        if given is GradientValue.SOME and is_zero and node.frame is not None:
            yield node.frame


def _divided(run: RunSteps, frame: Frame) -> tuple[str, Frame | None] | None:
    """What a line names that ``//`` gave, and the line where it did; None: nothing."""
    nodes = nodes_beside(run.trace, frame)
    at = [node for node in nodes if getattr(node, "lineno", 0) == frame.line]
    for node in at:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            return ast.unparse(node), None
    named = {node.id for node in at if isinstance(node, ast.Name)}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in named:
                if _holds_division(value):
                    return name, line_at(run.trace, frame.file, node.lineno, frame.function)
    return None


def _holds_division(value: ast.expr) -> bool:
    """Whether an expression is a quotient of whole numbers, or the least or most of such."""
    match value:
        case ast.BinOp(op=ast.FloorDiv()):
            return True
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _holds_division(left) or _holds_division(right)
        case ast.Call(func=ast.Name(id="min" | "max" | "float"), args=args):
            return any(map(_holds_division, args))
    return False
