"""A state that is multiplied by more than 1 in each step of a recurrence, where it should decay.

Note [A decay that grows]
A product comes again and again at one line, each after what the next one gave, with factors that
one line made. Its derivative by the state is the factor: where the gradient is larger behind each
of these products than before it, in the first pass and in the last, the factors are above 1, and
the state grows as the gradient does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_MOST_NODES: Final = 20_000
_LEAST: Final = 8
"""Steps."""
_GROWN: Final = 1e3
"""Times that the gradient has to grow by these products alone."""
_BETWEEN: Final = frozenset({"Add", "Sub", "ToCopy", "Clone"})
_VIEWS: Final = frozenset(
    {"Alias", "Expand", "Index", "Permute", "Reshape", "ReshapeAlias", "Select", "Slice", "Split"}
    | {"Squeeze", "T", "Transpose", "Unbind", "Unsqueeze", "UnsafeView", "View"}
)
_MOST_BETWEEN: Final = 6


class _Amplified(NamedTuple):
    frame: Frame
    factor: str
    """What made the factors, between commas; empty: nothing that has a gradient."""
    steps: int
    times: float


def amplified(run: RunSteps) -> Iterator[StepFinding]:
    """The line that makes a state grow in each step. Note [A decay that grows]."""
    if len(run.passes) < 2:
        return
    last, first = (_in_pass(run, task.id) for task in (run.passes[-1], run.passes[0]))
    if last is None or first is None or last.frame != first.frame:
        return
    each = last.times ** (1 / last.steps)
    yield StepFinding(
        kind="grows each step",
        heading=f"a recurrence multiplies its state by more than 1 in each of {last.steps:,} steps",
        frame=last.frame,
        paragraph=(
            f"By this product the gradient grows {each:.3g}-fold in each step back, in the last"
            f" backward pass {number(last.times)}-fold in all: its factor{last.factor} is above"
            " 1, and the state grows as fast from step to step. If the state is to decay, the"
            " factor has to be below 1: exp of something negative, as exp(-softplus(a)), or"
            " sigmoid(a)."
        ),
    )


def _in_pass(run: RunSteps, graph_task: int) -> _Amplified | None:
    if run.trace.graph_task(graph_task).nodes > _MOST_NODES:
        return None
    nodes = run.trace.nodes(graph_task)
    lines: dict[Frame, list[int]] = {}
    for node in nodes:
        if node.frame is not None and base_name(node.name) == "Mul":
            lines.setdefault(node.frame, []).append(node.index)
    lines = {frame: group for frame, group in lines.items() if len(group) > _LEAST}
    if not lines:
        return None
    graph = _Graph(GradientFlow(run.trace, graph_task))
    found = (_of_line(graph, frame, group) for frame, group in lines.items())
    return next(filter(None, found), None)


def _of_line(graph: _Graph, frame: Frame, group: Sequence[int]) -> _Amplified | None:
    """What the products of a line do to a state, where each makes its gradient larger."""
    ratios: list[float] = []
    factors: set[str] = set()
    for index in group:
        outputs = graph.ahead.get(index, {})
        leading = [one for one, to in outputs.items() if graph.leads(to, group)]
        if len(leading) != 1:
            continue
        _, given = graph.flow.input(index, 0)
        _, gave = graph.flow.output(index, leading[0])
        if given is None or gave is None or not given.norm or not gave.norm:
            continue
        ratios.append(gave.norm / given.norm)
        factors |= {graph.maker(to) for one, to in outputs.items() if one != leading[0]}
    if len(ratios) < _LEAST or min(ratios) <= 1 or len(factors) > 1:
        return None
    times = math.prod(ratios)
    factor = f", {factors.pop()}," if factors else ""
    return _Amplified(frame, factor, len(ratios), times) if _GROWN <= times < math.inf else None


class _Graph:
    """Where the gradients of a pass go.

    Args:
        flow: its gradients.
    """

    def __init__(self, flow: GradientFlow) -> None:
        self.flow = flow
        self.ahead: dict[int, dict[int, int]] = {}
        """By node: by output, the node that it goes to."""
        for edge in flow.trace.edges(flow.graph_task):
            self.ahead.setdefault(edge.producer, {})[edge.output] = edge.consumer

    def leads(self, index: int, group: Sequence[int]) -> bool:
        """Whether a gradient goes on to another product of a line, but for sums and views."""
        waiting = [index]
        for _ in range(_MOST_BETWEEN):
            if not waiting:
                break
            index = waiting.pop()
            if index in group:
                return True
            if base_name(self.flow.nodes[index].name) in _BETWEEN | _VIEWS:
                waiting += self.ahead.get(index, {}).values()
        return False

    def maker(self, index: int) -> str:
        """What made a factor, behind its views: a parameter, or a function and its line."""
        for _ in range(_MOST_BETWEEN):
            below = list(self.ahead.get(index, {}).values())
            if base_name(self.flow.nodes[index].name) not in _VIEWS or len(below) != 1:
                break
            index = below[0]
        node = self.flow.nodes[index]
        at = "" if node.frame is None else f" in line {node.frame.line}"
        return node.parameter or f"made by {base_name(node.name)}{at}"
