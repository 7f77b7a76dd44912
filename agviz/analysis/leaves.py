"""Why leaves that are no known parameters got no gradient, or zeros: tensors of a test, say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.gradient_flow import GradientValue
from agviz.analysis.gradients import Gradients, GradientWord
from agviz.analysis.phrases import by_node
from agviz.analysis.vanishing import Vanishing
from agviz.traces.rows import GraphTaskStatus, NodeStatus, ParameterRow
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.gradients import GradientRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

_MOST_PASSES: Final = 20
_WORDS: Final[dict[GradientValue, GradientWord]] = {
    GradientValue.NONE: "none",
    GradientValue.ZERO: "zero",
}


def leaves(trace: Trace) -> Gradients:
    """The leaves to which no gradient came, or zeros, in the last calls of backward.

    Results of ``torch.autograd.grad`` are not among them, and no leaf that the graph does not hold.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    tasks = [
        task
        for task in trace.graph_tasks
        if task.accumulate_grad and task.status is GraphTaskStatus.FINISHED
    ]
    vanishing = Vanishing(trace)
    return Gradients(row for task in tasks[-_MOST_PASSES:] for row in _of(vanishing, task.id))


def _of(vanishing: Vanishing, graph_task: int) -> Iterator[GradientRow]:
    flow = vanishing.flow(graph_task)
    for node in flow.nodes:
        if not node.is_leaf or node.parameter or node.status is not NodeStatus.DONE:
            continue
        word = _WORDS.get(flow.gradient(node.index)[0])
        if word is not None and node.shape != (0,):
            end = vanishing.find(graph_task, node.index)
            yield by_node(_named(node), word, graph_task, end)


def _named(node: NodeRow) -> ParameterRow:
    shape = "" if node.shape is None else f" of shape {write_shape(node.shape)}"
    return ParameterRow(
        name=f"the leaf{shape} (node {node.index})",
        shape=node.shape,
        dtype="",
        requires_grad=True,
        had_grad=False,
        node=node.index,
    )
