"""Layers whose units all begin alike, and models that nothing bends.

Note [Alike]
Where all weights of a layer and of the next one are one number, each unit of the first computes the
same, gets the same gradient, and stays like the others: the layer is as wide as one unit. The text
gives the number, and the norm of the weights before the first step shows that they have it.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, line_at, nodes_of, user_files
from agviz.analysis.evidence import base_name
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_CONSTANTS: Final = {"constant_": 1, "fill_": 0, "ones_": -1}
"""Functions that give all elements a number, and its place among arguments; -1: it is 1."""
_SAME: Final = 1e-5
_LAYERS: Final = frozenset({"Addmm", "Mm"})
_STRAIGHT: Final = (
    _LAYERS
    | {"AccumulateGrad", "Add", "Alias", "Clone", "Expand", "Permute", "ReshapeAlias", "Select"}
    | {
        "Slice",
        "Squeeze",
        "Sum",
        "T",
        "Transpose",
        "UnsafeView",
        "Unsqueeze",
        "View",
        "ViewBackward",
    }
)
"""What bends nothing."""
_LOSSES: Final = frozenset(
    {"BinaryCrossEntropyWithLogits", "HuberLoss", "LogSoftmax", "Mean", "MseLoss", "NllLoss"}
    | {"SmoothL1Loss"}
)
_MOST_NODES: Final = 2_000


def begun_alike(run: RunSteps) -> Iterator[StepFinding]:
    """Layers all of whose weights were made one number. Note [Alike]."""
    for each in run.optimizers:
        sizes = {row.name: row.shape for row in each.held if row.name and len(row.shape) > 1}
        began = {
            row.parameter: row.norm
            for row in each.steps[0].sample
            if row.parameter in sizes and row.norm is not None
        }
        for value, line in _constants(run.trace):
            alike = [
                name
                for name, norm in began.items()
                if value and math.isclose(norm, abs(value) * _root(sizes[name]), rel_tol=_SAME)
            ]
            if not alike or len(alike) < len(began):
                continue
            yield StepFinding(
                kind="alike",
                heading=f"all units of a layer begin alike, and stay alike: {listed(alike)}",
                frame=line,
                paragraph=(
                    f"Every weight was {number(value)} before the first step. So all units of a"
                    " layer compute the same and get the same gradient, and no step makes them"
                    " different: a layer of any width is as good as one unit. Draw weights at"
                    " random, as torch does by itself (nn.init.kaiming_uniform_, xavier_uniform_);"
                    " only biases may be alike."
                ),
            )
            return


def _root(shape: tuple[int, ...]) -> float:
    return math.sqrt(math.prod(shape))


def _constants(trace: Trace) -> Iterator[tuple[float, Frame]]:
    """The numbers that lines give the weights of several layers, with the lines.

    In a loop, in a function that is applied to each module, or by a second such line.
    """
    for file in user_files(trace):
        nodes = nodes_of(trace, file)
        applied = {
            part.id
            for _, node in nodes
            if isinstance(node, ast.Call) and called_name(node) == "apply"
            for each in node.args
            for part in ast.walk(each)
            if isinstance(part, ast.Name)
        }
        in_loops = {
            id(part) for _, node in nodes if isinstance(node, ast.For) for part in ast.walk(node)
        }
        found = [
            (value, function in applied or id(node) in in_loops, function, node.lineno)
            for function, node in nodes
            if isinstance(node, ast.Call) and math.isfinite(value := _constant(node))
        ]
        for value, is_of_several, function, line in found:
            if is_of_several or [each[0] for each in found].count(value) > 1:
                yield value, line_at(trace, file, line, function)


def _constant(call: ast.Call) -> float:
    """The number that a call gives all elements of something; NaN: it is no such call."""
    place = _CONSTANTS.get(called_name(call))
    if place is None or "bias" in ast.unparse(call):
        return math.nan
    if place < 0:
        return 1.0
    given = call.args[place] if place < len(call.args) else None
    if isinstance(given, ast.Constant) and isinstance(given.value, int | float):
        return float(given.value)
    return math.nan


def one_linear_map(run: RunSteps) -> StepFinding | None:
    """A model of several layers that nothing bends; None: it is none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    last = run.passes[-1] if run.passes and run.optimizers else None
    if last is None or last.nodes > _MOST_NODES:
        return None
    names = [base_name(label.name) for label in run.trace.node_labels(last.id, 0, last.nodes)]
    if not set(names) <= _STRAIGHT | _LOSSES or names.count("Mean") > 1:
        return None
    ways: dict[int, list[int]] = {}
    for edge in run.trace.edges(last.id):
        ways.setdefault(edge.producer, []).append(edge.consumer)
    pairs = [
        (index, behind)
        for index, name in enumerate(names)
        if name in _LAYERS
        for way in ways.get(index, ())
        if (behind := _layer_behind(way, names, ways)) is not None
    ]
    wide = [
        (first, second) for second, first in pairs if not _is_narrow(run, last.id, first, second)
    ]
    if not wide:
        return None
    first, second = wide[0]
    node = run.trace.node(last.id, second)
    before = run.trace.node(last.id, first)
    where = f" and {before.frame.line}" if before.frame is not None else ""
    return StepFinding(
        kind="linear",
        heading="nothing bends between the layers: together they are one linear map",
        frame=node.frame,
        paragraph=(
            f"From the input to the loss there is no activation: a layer of this line is given what"
            f" another one made (lines {node.frame.line if node.frame else '?'}{where}), and two"
            " linear maps in a row are one. However many layers there are, the model learns no more"
            " than a single one does. Put an activation, such as torch.relu, between them."
        ),
    )


def _layer_behind(index: int, names: list[str], ways: dict[int, list[int]]) -> int | None:
    """The layer that gives a layer its input, by views alone; None: there is none."""
    while names[index] not in _LAYERS:
        # What is added to data is a correction of it, as of an adapter beside frozen layers.
        if names[index] in {"Add", "T", "AccumulateGrad"} or len(ways.get(index, ())) != 1:
            return None
        (index,) = ways[index]
    return index


def _is_narrow(run: RunSteps, task: int, first: int, second: int) -> bool:
    """Whether what is between two layers is smaller than what they map, as in a low rank update."""
    came, gave = run.trace.node(task, first), run.trace.node(task, second)
    between, out = (next(iter(each.input_shapes or ()), None) for each in (came, gave))
    weight = (came.output_shapes or (None,))[-1]  # its second matrix, [inputs, outputs]
    if not between or not out or not weight:
        return True
    return between[-1] < min(out[-1], weight[0])
