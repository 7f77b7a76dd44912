"""Places in pixels that are given to grid_sample, which takes -1 to 1.

Note [Where a grid is in pixels]
Where the forward was recorded, the numbers of the grid say it: they go up to the size of the image,
and their mean is inside of it, away from 0. Single places far outside, as of points behind a
camera, are no reason. Else the text says it: the grid is a sum with what counts, by ``arange``, and
nothing on the way to that divides or multiplies. Then most of the gradient of the grid is zero, as
it is of places outside of the image.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.blame import arguments
from agviz.analysis.code_search import called_name, nodes_of
from agviz.analysis.lineage import last_name
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.vanishing import SAMPLERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.given_names import GivenNames
    from agviz.analysis.steps.run import RunSteps
    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame, GraphTaskRow

_PASSES: Final = 3
"""The last ones, in all of which it is so."""
_MOST_NODES: Final = 20_000
_MOST_OPS: Final = 5_000
_SAMPLING: Final = "grid_sample"
_INSIDE: Final = (0.25, 0.75)
"""Where the mean of places lies that are all over an image, of its size."""
_BEYOND: Final = 1.5
"""Times the size of an image: places farther away are no pixels of it."""
_LEAST_SIZE: Final = 8
"""Of an image: 2 pixels away from its middle are outside of -1 to 1 by far."""
_LEAST_ZERO: Final = 0.75
"""Of the gradient of a grid."""
_COUNTING: Final = "arange"
_MOST_DEEP: Final = 24
_JOINING: Final = frozenset(
    {"broadcast_tensors", "cartesian_prod", "cat", "concat", "dstack", "meshgrid", "stack"}
)
"""Functions that put numbers together as they are."""
_ALIKE: Final = frozenset(
    {"clone", "contiguous", "double", "expand", "expand_as", "flip", "float", "half", "permute"}
    | {"repeat", "requires_grad_", "reshape", "squeeze", "t", "to", "transpose", "type_as"}
    | {"unsqueeze", "view"}
)
"""Methods, and functions, that give the numbers they are called for."""


def in_pixels(run: RunSteps) -> Iterator[StepFinding]:
    """A grid of pixels in all of the last passes. Note [Where a grid is in pixels]."""
    passes = run.passes[-_PASSES:]
    if len(passes) < _PASSES or max(passes.nodes) > _MOST_NODES:
        return
    if run.trace.meta.check_forward:
        measured = [_measured(run.trace, task) for task in passes]
    else:
        measured = [_by_gradient(run, task) for task in passes]
    for line, seen in measured[-1].items():
        if all(line in one for one in measured):
            yield StepFinding(
                kind="grid in pixels",
                heading="grid_sample is given places in pixels, and takes -1 to 1",
                frame=line,
                paragraph=(
                    f"{seen} To grid_sample -1 and 1 are the edges of the image: most of these"
                    " places lie outside, where it gives padding, and no gradient to what moves"
                    " them. Divide by the size: 2 * x / (width - 1) - 1 with align_corners=True,"
                    " (2 * x + 1) / width - 1 without; shifts by the same factor. The last"
                    " dimension is x, y."
                ),
            )
            return


def _measured(trace: Trace, task: GraphTaskRow) -> dict[Frame, str]:
    """The lines of a pass that sample at pixels, with what was measured."""
    found = {}
    for op in trace.forward_ops(task.id, limit=_MOST_OPS):
        if last_name(op) == _SAMPLING and op.frame is not None and op.recomputed_in == -1:
            said = _of_pixels(trace, op)
            if said:
                found[op.frame] = said
    return found


def _of_pixels(trace: Trace, op: ForwardOpRow) -> str:
    shapes = {row.place: row.shape for row in op.inputs}
    size = (shapes.get("0", shapes.get("input")) or ())[2:]
    given = {one.place: one.health for one in arguments(trace, op)}
    grid = given.get("1", given.get("grid"))
    if grid is None or not size or min(size) < _LEAST_SIZE or not _is_of_image(grid, size):
        return ""
    return f"The grid has {_range(grid)}: those of pixels of {list(size)}."


def _is_of_image(grid: Health, size: Sequence[int]) -> bool:
    if grid.mean is None or grid.min is None or grid.max is None:
        return False
    least, most = _INSIDE
    is_inside = least * min(size) <= grid.mean <= most * max(size)
    return is_inside and -0.5 * max(size) <= grid.min and grid.max <= _BEYOND * max(size)


def _range(grid: Health) -> str:
    least, most, mean = (number(one or 0.0) for one in (grid.min, grid.max, grid.mean))
    return f"numbers from {least} to {most}, with a mean of {mean}"


def _by_gradient(run: RunSteps, task: GraphTaskRow) -> dict[Frame, str]:
    """The lines of a pass whose grid counts pixels, and gets a gradient of zeros for the most."""
    found = {}
    for node in run.trace.nodes(task.id):
        if node.frame is None or node.name.removesuffix("Backward0") not in SAMPLERS:
            continue
        for row in run.trace.health(task.id, node.index):
            is_of_grid = (row.role, row.slot) == ("output", 1)
            is_zero = _LEAST_ZERO * row.numel <= row.zero < row.numel
            if is_of_grid and is_zero and _is_counted(run, node.frame):
                found[node.frame] = (
                    "The grid is counted by arange(), in pixels, and nothing brings it to -1 to 1;"
                    f" {row.zero:,} of the {row.numel:,} numbers of its gradient are 0."
                )
    return found


def _is_counted(run: RunSteps, line: Frame) -> bool:
    """Whether the text counts the pixels of which the grid of a line is made."""
    for function, node in nodes_of(run.trace, line.file):
        if (
            isinstance(node, ast.Call)
            and called_name(node) == _SAMPLING
            and function == line.function
            and node.lineno <= line.line <= (node.end_lineno or node.lineno)
        ):
            words = {word.arg: word.value for word in node.keywords}
            grid = words.get("grid", node.args[1] if len(node.args) > 1 else None)
            return grid is not None and _counts(run.given_names, grid)
    return False


def _counts(names: GivenNames, value: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is made of what ``arange`` gives, moved at most."""
    if depth > _MOST_DEEP:
        return False
    if isinstance(value, ast.Call) and called_name(value) == _COUNTING:
        inside = [node for each in value.args for node in ast.walk(each)]
        return not any(isinstance(node, ast.UnaryOp | ast.Div) for node in inside)
    parts = _made_of(value)
    if parts:
        return any(_counts(names, each, depth + 1) for each in parts)
    given = names.given(value)
    return bool(given) and all(each and _counts(names, each, depth + 1) for each in given)


def _made_of(value: ast.expr) -> Sequence[ast.expr]:
    """Of which expressions one has the numbers, moved at most; empty: that is not written in it."""
    match value:
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
            return left, right
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return parts
        case ast.Subscript(value=of) | ast.Starred(value=of):
            return (of,)
        case ast.Call(func=ast.Attribute(value=of)) if called_name(value) in _ALIKE:
            return value.args[:1] if ast.unparse(of) == "torch" else (of,)
        case ast.Call() if called_name(value) in _JOINING:
            return value.args
    return ()
