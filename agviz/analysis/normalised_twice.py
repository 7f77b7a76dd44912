"""Losses of probabilities that take what they are given for something else.

Note [What a loss is given]
``cross_entropy`` and ``binary_cross_entropy_with_logits`` normalise what they are given, and
``nll_loss`` takes its logarithm for taken. The graph shows what a loss was given: the node that
normalised it lies right below that of the loss, but for views and casts. A ``log_softmax`` of a
``log_softmax`` gives the same, and is left alone. The graph is a recorded one here, and that of a
running program in ``agviz check``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from agviz.analysis.program_calls import last_passes
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow


_Node = TypeVar("_Node")


class Loss(NamedTuple):
    """A loss, by the nodes of which it is made."""

    name: str
    nodes: tuple[str, ...]
    """Beginnings of their names, the loss's own first."""
    expects: str
    takes: str
    """What it does with what it is given, or takes it for."""
    remedy: str
    is_composed: bool = False
    """Whether the nodes, one of which is there, are those of arithmetic within the function."""

    def heading(self, function: str) -> str:
        """What the loss was given, by the function that gave the probabilities."""
        return f"{self.name} is given the output of a {function}: it expects {self.expects}"

    def paragraph(self, function: str, place: str = "") -> str:
        """What it makes of that, and what to do."""
        return (
            f"The {function} is called{place}, and {self.name} {self.takes}. {self.remedy}, without"
            f" that {function}; apply the {function} only where probabilities are wanted."
        )


_PROBABILITIES: Final = {"Softmax": "softmax", "SafeSoftmax": "softmax", "Sigmoid": "sigmoid"}
"""What gives probabilities, by the kinds of its nodes."""
_RESHAPING: Final = (
    *("Alias", "Clone", "Expand", "Index", "Permute", "Reshape", "Select", "Slice", "Split"),
    *("Squeeze", "T", "ToCopy", "Transpose", "Unbind", "UnsafeView", "Unsqueeze", "View"),
)
_CONSTANT: Final = frozenset({"Add", "Sub", "Rsub"})
"""What adds a number, where nothing else that it takes has a graph."""
LOSSES: Final = (
    Loss(
        "cross_entropy",
        ("NllLoss", "LogSoftmax"),
        "logits",
        "applies log_softmax to what it is given, so that it is normalised twice: from numbers"
        " between 0 and 1 no class gets far ahead of the others, the loss stays high, and gradients"
        " are small",
        "Give cross_entropy the logits",
    ),
    Loss(
        "binary_cross_entropy_with_logits",
        ("BinaryCrossEntropyWithLogits",),
        "logits",
        "applies a sigmoid to what it is given, so that it is normalised twice: from numbers"
        " between 0 and 1 it makes probabilities between 0.5 and 0.73, and gradients are small",
        "Give it the logits",
    ),
    Loss(
        "nll_loss",
        ("NllLoss",),
        "log probabilities",
        "takes what it is given for logarithms of probabilities: without the log the loss is"
        " negative, and its gradient is the same however wrong the prediction is",
        "If not just that is meant (1 - p is a loss, too), use log_softmax instead, or"
        " cross_entropy of the logits",
    ),
    Loss(
        "kl_div",
        ("Mul", "Sub"),  # target * input, or with log_target, target - input
        "log probabilities",
        "takes its input for logarithms of probabilities: value and gradient are of another"
        " divergence than is meant",
        "Use log_softmax or logsigmoid instead",
        is_composed=True,
    ),
)
_OF_SCORES: Final = {loss.name: loss for loss in LOSSES if loss.expects == "logits"}
_CLIPPED: Final = {
    "cross_entropy": "No class can be made unlikely by a score below 0",
    "binary_cross_entropy_with_logits": "No probability can be below 0.5",
}
_FUNCTIONAL: Final = "torch/nn/functional.py"
_MOST_NODES: Final = 20_000
"""A larger graph is not read."""
_MOST_STEPS: Final = 8
"""Views and casts between the two."""


def normalised_twice(trace: Trace) -> StepFinding | None:
    """A loss of the last pass that was given probabilities, and not what it takes.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for graph in _last_graph(trace):
        for node in graph.nodes:
            for loss in LOSSES:
                found = graph.given_to(node, loss)
                if found is not None:
                    return found
    return None


def clipped_scores(trace: Trace) -> StepFinding | None:
    """A loss of the last pass whose scores come out of a ReLU; None: there is none.

    It may learn all the same.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for graph in _last_graph(trace):
        for node in graph.nodes:
            for name, loss in _OF_SCORES.items():
                relu = graph.relu_of(node, loss)
                if relu is not None:
                    return StepFinding(
                        kind="clipped scores",
                        heading=f"{name} is given the output of a ReLU: no score is below 0",
                        frame=relu.frame,
                        paragraph=(
                            f"{_CLIPPED[name]}, and where scores are clipped no gradient comes"
                            " back. Leave the ReLU out behind the last layer: the loss takes"
                            " scores of any size. If none is to be below 0, all is well."
                        ),
                    )
    return None


def _last_graph(trace: Trace) -> Iterator[_Graph]:
    """The graph of the last pass, if there is one that is not too large to be read."""
    for task in last_passes(trace, 1):
        if task.nodes <= _MOST_NODES:
            yield _Graph(trace, task.id)


def probabilities(
    node: _Node | None, name: Callable[[_Node], str], below: Callable[[_Node], _Node | None]
) -> tuple[_Node, str] | None:
    """The node that gave probabilities, through views and casts, and its function; None: none did.

    Args:
        node: of what is asked about.
        name: of a node, as torch writes it.
        below: what the gradient of a node's first argument flows to.
    """
    node = _past_views(node, name, below)
    function = "" if node is None else _PROBABILITIES.get(_kind(name(node)), "")
    return (node, function) if node is not None and function else None


def _past_views(
    node: _Node | None, name: Callable[[_Node], str], below: Callable[[_Node], _Node | None]
) -> _Node | None:
    for _ in range(_MOST_STEPS):
        if node is None or _kind(name(node)) not in _RESHAPING:
            break
        node = below(node)
    return node


def _kind(name: str) -> str:
    """``Softmax`` of ``SoftmaxBackward0``."""
    return name.partition("Backward")[0]


def _is_within(node: NodeRow, function: str) -> bool:
    """Whether a function of ``torch.nn.functional`` made a node."""
    made = node.stack[-1:]
    return bool(made) and made[0].function == function and made[0].file.endswith(_FUNCTIONAL)


class _Graph:
    """The names of a pass's nodes, and what each leads to."""

    def __init__(self, trace: Trace, graph_task: int) -> None:
        self._trace = trace
        self._task = graph_task
        nodes = trace.graph_task(graph_task).nodes
        self.nodes = range(nodes)
        self._names = [label.name for label in trace.node_labels(graph_task, 0, nodes)]

    def given_to(self, node: int, loss: Loss) -> StepFinding | None:
        """The probabilities that a loss was given as its first argument; None: none."""
        below = self._argument(node, loss)
        found = probabilities(below, self._names.__getitem__, self._below)
        if found is None or (loss.name == "nll_loss" and self._is_meant(node)):
            return None
        at, made = (self._trace.node(self._task, each) for each in (node, found[0]))
        if loss.is_composed and not _is_within(at, loss.name):
            return None
        place = "" if made.frame is None else f" at {made.frame}"
        place += f" in {made.module}" if made.module else ""
        return StepFinding(
            kind="given probabilities",
            heading=loss.heading(found[1]),
            frame=at.frame or made.frame,
            paragraph=loss.paragraph(found[1], place),
            evidence=(f"node {at.index} ({at.name}) leads to node {made.index} ({made.name})",),
        )

    def relu_of(self, node: int, loss: Loss) -> NodeRow | None:
        """The node of a ReLU that gave a loss its first argument; None: another one did."""
        below = self._argument(node, loss)
        if below is None or _kind(self._names[below]) != "Relu":
            return None
        return self._trace.node(self._task, below)

    def _argument(self, node: int, loss: Loss) -> int | None:
        """What gave a loss its first argument, views aside; None: the node is of no such loss."""
        below: int | None = node
        if loss.is_composed:
            is_one = _kind(self._names[node]) in loss.nodes
            below = self._below(node, 1) if is_one else None
        else:
            for begins in loss.nodes:
                if below is None or not self._names[below].startswith(begins):
                    return None
                below = _past_views(self._below(below), self._names.__getitem__, self._below)
        return below

    def _is_meant(self, node: int) -> bool:
        """Whether the program makes 1 - p of what ``nll_loss`` gives, -p."""
        if self._trace.losses().get(self._task, -1.0) < 0:
            return False  # the number may be what a sum began with
        taking = [edge.producer for edge in self._trace.edges_into(self._task, node)]
        return any(
            _kind(self._names[taker]) in _CONSTANT
            and len(self._trace.edges_from(self._task, taker)) == 1
            for taker in taking
        )

    def _below(self, node: int, argument: int = 0) -> int | None:
        """What the gradient of a node's first argument flows to, or of another one."""
        edges = self._trace.edges_from(self._task, node)
        return next((edge.consumer for edge in edges if edge.output == argument), None)
