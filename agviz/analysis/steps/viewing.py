"""Data that a training loop changes in place through a view: each round changes it again.

Note [Views of data]
``y = targets[a:b]`` shares the memory of ``targets``, where indices are slices and integers, and
``y -= 1`` writes to it. Plain from the text is what the view is of, that this was made before the
loop, and that a later turn comes back to the same rows: a loop around has no part in the index, or
the index is drawn or wraps around. What gives the same a second time (a clamp, a division by the
own norm) does no harm. Where what is written comes of the turn itself, as of a model, it is a state
that is kept on purpose.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, tree_of
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.loop_views import Loop, LoopScope, holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_LEAST: Final = 3
"""Passes."""


def written_views(run: RunSteps) -> Iterator[StepFinding]:
    """Writes in place to a part of what was made before the loop. Note [Views of data]."""
    ids = run.passes.ids
    stack = run.trace.call_site(ids[-1]) if len(ids) >= _LEAST else ()
    frames = [frame for frame in stack if not frame.hidden]
    for number, frame in enumerate(frames):
        tree = tree_of(run.trace, frame.file)
        scope = LoopScope.around(tree, frame, is_called_in_a_loop=_has_loops(run, frames[:number]))
        for view, write in () if scope is None else scope.changed():
            line = write.node.lineno
            yield StepFinding(
                kind="data written",
                heading=f"{view.name} is a view: each round changes {view.of} again",
                frame=line_at(run.trace, frame.file, line, frame.function),
                paragraph=(
                    f"In line {view.line} {view.name} shares the memory of {view.of}, which was"
                    " made before the loop; this statement writes to it in place. When the loop"
                    " comes back to the same rows, they are changed once more, so that the data is"
                    f" another one in each round. {_anew(write.node)} {view.name}.clone() in line"
                    f" {view.line}."
                ),
            )
            return


def _has_loops(run: RunSteps, frames: Sequence[Frame]) -> bool:
    return any(
        isinstance(node, Loop) and holds(node, frame.line)
        for frame in frames
        for node in ast.walk(tree_of(run.trace, frame.file))
    )


def _anew(node: ast.stmt) -> str:
    """How an advice begins: with the same without a write, where that is short."""
    if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Name):
        return "Take"
    value = ast.unparse(ast.BinOp(node.target, node.op, node.value))
    return f"Write {node.target.id} = {value}, or take"
