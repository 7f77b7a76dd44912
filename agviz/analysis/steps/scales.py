"""Data of which some values are huge, as their gradients prove."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import NodeRow

_STEEP: Final = 1e3
"""Times its norm: so large is a parameter's gradient, where data are looked at."""
_HUGE: Final = 1e5
"""The least that some value is, to be named."""
_DATA: Final = {"AddmmBackward0": 1, "ConvolutionBackward0": 0, "MmBackward0": 0}
"""The output of a node that is the gradient of what it multiplied a weight by."""
_MOST_READ: Final = 20_000
"""Nodes; a larger pass is not read."""


class LargeData(NamedTuple):
    """Data that a weight is multiplied by."""

    node: NodeRow
    weight: NodeRow
    least: float
    """The largest value of the data is no less."""
    came: float
    """Norm of the gradient that came to the node."""
    gradient: float
    """Norm of that of the weight."""


def unscaled(run: RunSteps) -> Iterator[StepFinding]:
    """Data that a weight is multiplied by, where some of its values are huge.

    The gradient of a weight is a sum of products of what came to the node and of data. So its norm
    is at most the product of both norms, and the norm of data at most the largest value times the
    root of how many there are.
    """
    if run.first_wrong is not None:
        return
    steep = [
        (row.gradient / row.norm, taken.graph_task)
        for each in run.optimizers
        for taken in each.steps
        for row in taken.sample
        if row.gradient and row.norm
    ]
    ratio, graph_task = max(steep, default=(0.0, -1))
    found = largest_data(run, graph_task) if ratio >= _STEEP else None
    if found is None or found.least < _HUGE:
        return
    loss = run.losses.get(graph_task)
    told = "" if loss is None else f" The loss is {number(loss)} there."
    name = found.weight.parameter
    yield StepFinding(
        kind="unscaled",
        heading=f"{name} is multiplied by data with values of {number(found.least)} and more",
        frame=found.node.frame,
        paragraph=(
            f"In backward pass {graph_task} a gradient of norm {number(found.came)} comes to it,"
            f" and that of {name} is {number(found.gradient)}: only data that large makes it so."
            f"{told} Look at how it is normalised. A column that is constant in what a mean and"
            " a standard deviation were taken of, divided by next to 0, gives such values where it"
            " is not; so do raw times and counts."
        ),
    )


def largest_data(run: RunSteps, graph_task: int) -> LargeData | None:
    """What a weight is multiplied by in a pass, and has the largest value for sure; None: unknown.

    Args:
        run: the run.
        graph_task: the pass; -1: there is none.
    """
    if graph_task < 0 or run.trace.graph_task(graph_task).nodes > _MOST_READ:
        return None
    return max(_read(run, graph_task), key=lambda each: each.least, default=None)


def _read(run: RunSteps, graph_task: int) -> Iterator[LargeData]:
    flow = GradientFlow(run.trace, graph_task)
    for index in run.trace.leaves(graph_task):
        weight = flow.nodes[index]
        if weight.parameter is None or weight.dependencies != 1 or len(weight.shape or ()) < 2:
            continue
        (edge,) = flow.edges_into(index)
        if flow.nodes[edge.producer].short_name == "TBackward0":
            (edge,) = flow.edges_into(edge.producer)[:1] or (edge,)
        node = flow.nodes[edge.producer]
        data = _DATA.get(node.short_name)
        edges = run.trace.edges_from(graph_task, node.index)
        if data is None or any(each.output == data for each in edges):
            continue  # what has a graph is no data
        came, gradient = flow.input(node.index, 0)[1], flow.gradient(index)[1]
        if came is None or gradient is None or not (came.norm and came.shape and gradient.norm):
            continue
        outputs = came.shape[1] if node.short_name == "ConvolutionBackward0" else came.shape[-1]
        values = (came.numel / outputs) * (gradient.numel / outputs)
        least = gradient.norm / came.norm / math.sqrt(values)
        yield LargeData(node, weight, least, came.norm, gradient.norm)
