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
        measured = [_by_gradient(run.trace, task) for task in passes]
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


def _by_gradient(trace: Trace, task: GraphTaskRow) -> dict[Frame, str]:
    """The lines of a pass whose grid counts pixels, and gets a gradient of zeros for the most."""
    found = {}
    for node in trace.nodes(task.id):
        if node.frame is None or node.name.removesuffix("Backward0") not in SAMPLERS:
            continue
        for row in trace.health(task.id, node.index):
            is_of_grid = (row.role, row.slot) == ("output", 1)
            is_zero = _LEAST_ZERO * row.numel <= row.zero < row.numel
            if is_of_grid and is_zero and _is_counted(trace, node.frame):
                found[node.frame] = (
                    "The grid is counted by arange(), in pixels, and nothing brings it to -1 to 1;"
                    f" {row.zero:,} of the {row.numel:,} numbers of its gradient are 0."
                )
    return found


def _is_counted(trace: Trace, line: Frame) -> bool:
    """Whether the text counts the pixels of which the grid of a line is made."""
    for function, node in nodes_of(trace, line.file):
        if (
            isinstance(node, ast.Call)
            and called_name(node) == _SAMPLING
            and function == line.function
            and node.lineno <= line.line <= (node.end_lineno or node.lineno)
        ):
            words = {word.arg: word.value for word in node.keywords}
            grid = words.get("grid", node.args[1] if len(node.args) > 1 else None)
            return grid is not None and _Counted(trace, line.file).counts(function, grid)
    return False


class _Counted:
    """What the variables and functions of a file count.

    Args:
        trace: holds the text.
        file: the file.
    """

    def __init__(self, trace: Trace, file: str) -> None:
        self._nodes = nodes_of(trace, file)
        self._defined = {
            node.name: node for _, node in self._nodes if isinstance(node, ast.FunctionDef)
        }
        self._seen = set[tuple[str, str]]()

    def counts(self, function: str, value: ast.expr) -> bool:
        """Whether an expression is made of what ``arange`` gives, moved at most."""
        match value:
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
                return any(self.counts(function, each) for each in (left, right))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(self.counts(function, part) for part in parts)
            case ast.Call():
                return self._is_counting(function, value)
            case ast.Subscript(value=of) | ast.Starred(value=of):
                return self.counts(function, of)
            case ast.Name() | ast.Attribute():
                return self._is_given_counts(function, ast.unparse(value))
        return False

    def _is_given_counts(self, function: str, written: str) -> bool:
        if (function, written) in self._seen:  # of itself, as x = x + 1
            return True
        self._seen.add((function, written))
        given = list(self._given(function, written))
        return bool(given) and all(self.counts(at, each) for at, each in given)

    def _is_counting(self, function: str, call: ast.Call) -> bool:
        name, of = called_name(call), list(call.args)
        if name == _COUNTING:
            parts = [node for each in of for node in ast.walk(each)]
            return not any(isinstance(node, ast.UnaryOp | ast.Div) for node in parts)
        if name in self._defined:
            given = list(self._returned(name))
            return bool(given) and all(self.counts(name, each) for each in given)
        if name in _ALIKE and isinstance(call.func, ast.Attribute):
            of = of[:1] if ast.unparse(call.func.value) == "torch" else [call.func.value]
        elif name not in _JOINING:
            return False
        return any(self.counts(function, each) for each in of)

    def _returned(self, name: str) -> Iterator[ast.expr]:
        for at, node in self._nodes:
            if at == name and isinstance(node, ast.Return) and node.value is not None:
                yield node.value

    def _given(self, function: str, written: str) -> Iterator[tuple[str, ast.expr]]:
        """What a variable is given: by assignments, as a buffer, or as an argument of calls."""
        for at, node in self._nodes:
            is_own = at == function or written.startswith("self.")
            match node:
                case ast.Assign(targets=targets, value=value) if is_own:
                    if written in [part for target in targets for part in _parts(target)]:
                        yield at, value
                case ast.AugAssign(target=target, op=op, value=value) if is_own:
                    if written in _parts(target):
                        yield at, ast.BinOp(ast.Name(written, ast.Load()), op, value)
                case ast.Call(func=ast.Attribute(value=of, attr=name)) if name == "register_buffer":
                    if written in {f"{ast.unparse(of)}.{_text(each)}" for each in node.args[:1]}:
                        yield from ((at, each) for each in node.args[1:2])
                case ast.Call(func=ast.Attribute(value=of, attr=name)) if (
                    is_own and name.endswith("_") and name not in _ALIKE and written in _parts(of)
                ):
                    yield at, node
                case ast.Call() if called_name(node) == function and function in self._defined:
                    yield from ((at, each) for each in self._argument(node, function, written))

    def _argument(self, call: ast.Call, function: str, name: str) -> Iterator[ast.expr]:
        names = [each.arg for each in self._defined[function].args.args]
        names = names[1:] if names[:1] == ["self"] else names
        yield from (word.value for word in call.keywords if word.arg == name)
        yield from (value for own, value in zip(names, call.args, strict=False) if own == name)


def _parts(target: ast.expr) -> list[str]:
    """What is written where something is assigned to: to some of its elements, too."""
    while isinstance(target, ast.Subscript | ast.Starred):
        target = target.value
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    return [each for part in parts for each in _parts(part)] or [ast.unparse(target)]


def _text(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else ""
