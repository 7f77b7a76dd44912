"""Dimensions taken for others: all samples for one, samples for classes.

Note [Which axis]
A log_softmax whose dimension is 0 normalises each class over the samples of a batch, and
nll_loss takes each row for the distribution of one sample.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    OF_TORCH,
    called_name,
    line_at,
    nodes_of,
)
from agviz.analysis.evidence import base_name
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame, NodeRow

_SOFTMAXES: Final = frozenset({"LogSoftmax", "log_softmax", "softmax"})
_MOST_NODES: Final = 20_000
_BOTH: Final = frozenset({"Add", "Div", "Mul", "Sub"})
_MEANS: Final = frozenset({"Mean", "Sum"})
_ELEMENTWISE: Final = _BOTH | {
    *("Abs", "Clamp", "ClampMin", "Exp", "Log", "LogSigmoid", "Maximum", "Minimum", "Neg", "Pow"),
    *("Relu", "Softplus", "Where"),
}
_OUTPUTS: Final = frozenset({"Addmm", "Mm", "Sigmoid", "Tanh"})
"""Kinds of nodes by which a model of one output ends."""
_MEANT: Final = ("None", "unsqueeze", "newaxis", "outer", "view", "reshape")
"""Words of a line that makes pairs on purpose."""
_LEAST_SIZE: Final = 4


def all_with_all(run: RunSteps) -> Iterator[StepFinding]:
    """Samples that are combined with all samples, [n] with [n, 1], on the way to a mean."""
    last = run.passes[-1] if run.passes else None
    if last is None or last.nodes > _MOST_NODES:
        return
    names = [base_name(label.name) for label in run.trace.node_labels(last.id, 0, last.nodes)]
    if _MEANS.isdisjoint(names):
        return
    before: dict[int, int] = {}
    for edge in run.trace.edges(last.id):
        before.setdefault(edge.consumer, edge.producer)
    for node in run.trace.nodes(last.id):
        shapes, (whole, *_) = node.output_shapes or (), node.input_shapes or (None,)
        if base_name(node.short_name) not in _BOTH or whole is None or len(whole) != 2:
            continue
        size = whole[0]
        parts = {tuple(shape) for shape in shapes if shape is not None}
        if whole[1] != size or size < _LEAST_SIZE or not parts <= {(size,), (size, 1)}:
            continue
        is_written = node.frame is None or any(word in node.frame.source for word in _MEANT)
        is_pair = (size,) in parts or _is_of_output(run, last.id, node, names)
        if not is_pair or is_written or not _is_averaged(node.index, names, before):
            continue
        other = f"[{size}]" if (size,) in parts else "data"
        yield StepFinding(
            kind="all with all",
            heading=f"{other} is combined with [{size}, 1]: each sample with all samples",
            frame=node.frame,
            paragraph=(
                f"The result is [{size}, {size}], of which the mean is taken: {size * size:,} pairs"
                f" in the place of {size:,} samples, nearly all of them of two different ones, so"
                " that what belongs together is averaged away. Give both one shape: squeeze(-1) the"
                " one, or unsqueeze(-1) the other."
            ),
        )
        return


def _is_of_output(run: RunSteps, graph_task: int, node: NodeRow, names: list[str]) -> bool:
    """Whether a layer of one output gave what is combined with data that has no graph."""
    edges = run.trace.edges_from(graph_task, node.index)
    return len(edges) == 1 and names[edges[0].consumer] in _OUTPUTS


def _is_averaged(index: int, names: list[str], before: dict[int, int]) -> bool:
    """Whether a node leads to a mean or a sum through functions of single elements."""
    while index in before:
        index = before[index]
        if names[index] in _MEANS:
            return True
        if names[index] not in _ELEMENTWISE:
            return False
    return False


def over_samples(run: RunSteps) -> Iterator[StepFinding]:
    """A log_softmax over the samples that nll_loss takes for distributions. Note [Which axis]."""
    last = run.passes[-1] if run.passes else None
    if last is None or last.nodes > _MOST_NODES:
        return
    names = [base_name(label.name) for label in run.trace.node_labels(last.id, 0, last.nodes)]
    if "NllLoss" not in names or "LogSoftmax" not in names:
        return
    for edge in run.trace.edges(last.id):
        if (names[edge.producer], names[edge.consumer]) != ("NllLoss", "LogSoftmax"):
            continue
        node = run.trace.node(last.id, edge.consumer)
        if node.frame is None or len((node.output_shapes or [()])[0] or ()) != 2:
            continue
        line = _over_first(run, node.frame)
        if line is not None:
            yield StepFinding(
                kind="axis",
                heading="log_softmax is over the samples of the batch, not over the classes",
                frame=line,
                paragraph=(
                    "Its dimension is 0, so that each class is normalised over the samples, which"
                    " compete with each other; nll_loss takes each row for the distribution of one"
                    " sample. A batch of one gets log probabilities of 0. Take dim=1, or dim=-1."
                ),
            )
            return


def _over_first(run: RunSteps, frame: Frame) -> Frame | None:
    """The line that gives a softmax dimension 0, at a frame or where its module is made."""
    found = []
    for function, node in nodes_of(run.trace, frame.file):
        if not isinstance(node, ast.Call) or called_name(node) not in _SOFTMAXES:
            continue
        is_module = called_name(node) == "LogSoftmax"
        words = {word.arg: word.value for word in node.keywords}
        owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        is_function = ast.unparse(owner) in OF_TORCH
        place = 0 if is_module or not is_function else 1
        given = words.get("dim", node.args[place] if len(node.args) > place else None)
        is_first = isinstance(given, ast.Constant) and given.value == 0
        inside = node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        if is_module or inside:
            found.append((is_first, line_at(run.trace, frame.file, node.lineno, function)))
    return found[0][1] if len(found) == 1 and found[0][0] else None
