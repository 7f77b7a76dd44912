"""Dimensions taken for others: steps of a sequence for samples, samples for classes.

Note [Which axis]
A recurrent layer of torch takes [steps, samples, features] unless it is made with batch_first=True.
Where the program then takes ``[:, -1]`` of what it gives, it means the last step, and gets the last
sample. A log_softmax whose dimension is 0 normalises each class over the samples of a batch, and
nll_loss takes each row for the distribution of one sample.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import OF_TORCH, called_name, line_at, nodes_of, user_files
from agviz.analysis.evidence import base_name
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.run import RunSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow

_RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})
_BATCH_FIRST: Final = 4
"""Place of batch_first among the arguments of a recurrent layer."""
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


def last_of_samples(run: RunSteps) -> Iterator[StepFinding]:
    """Outputs of recurrent layers of which the last sample is taken. Note [Which axis]."""
    for frame, layer, made in _lasts(run, _is_steps_first):
        yield StepFinding(
            kind="axis",
            heading=f"the last sample is taken of what {layer} gives, not the last step",
            frame=frame,
            paragraph=(
                f"self.{layer} is made without batch_first (line {made}), so it takes its input"
                " for [steps, samples, features]: it runs along the samples of a batch, and [:, -1]"
                " is the last of them at each step. Make it with batch_first=True if dimension 0 is"
                " the batch, else take [-1]."
            ),
        )
        return


def one_step_of_two_ways(trace: Trace) -> StepFinding | None:
    """The last outputs of a layer of two directions, where they are all that is taken of it.

    None: there are none. They may suffice.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if trace.meta.partial:
        return None
    for frame, layer, made in _lasts(RunSteps(trace.beginning), _is_of_two_ways):
        return StepFinding(
            kind="one step of two ways",
            heading=f"of what {layer} reads backwards, one step only is taken",
            frame=frame,
            paragraph=(
                f"self.{layer} is bidirectional (line {made}): at the last step its second half has"
                " read that step alone, and nothing before it. Where both directions are to have"
                " read all, take h_n, torch.cat([h_n[-2], h_n[-1]], dim=1), or the second half at"
                " [:, 0]. If that step alone is meant, all is well."
            ),
        )
    return None


def _lasts(run: RunSteps, fits: Callable[[ast.Call], bool]) -> Iterator[tuple[Frame, str, int]]:
    """Where ``[:, -1]`` is taken of recurrent layers, with these and the lines that make them."""
    for file in user_files(run.trace) if run.optimizers else ():
        for _, owner in nodes_of(run.trace, file):
            layers = _recurrent(owner, fits) if isinstance(owner, ast.ClassDef) else {}
            for method in owner.body if isinstance(owner, ast.ClassDef) and layers else ():
                if not isinstance(method, ast.FunctionDef) or method.name not in run.running:
                    continue
                found = _taken(method, layers)
                if found is not None:
                    node, layer = found
                    line = line_at(run.trace, file, node.lineno, method.name)
                    yield line, layer, layers[layer]


def _is_steps_first(made: ast.Call) -> bool:
    return len(made.args) <= _BATCH_FIRST and not any(
        word.arg in {"batch_first", None} for word in made.keywords
    )


def _is_of_two_ways(made: ast.Call) -> bool:
    on = {word.arg for word in made.keywords if ast.unparse(word.value) == "True"}
    return {"batch_first", "bidirectional"} <= on


def _recurrent(owner: ast.ClassDef, fits: Callable[[ast.Call], bool]) -> dict[str, int]:
    """The recurrent layers that a class makes by a call that fits, with their lines."""
    found, others = dict[str, int](), set[str]()
    for node in ast.walk(owner):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Attribute):
            continue
        name, made = node.targets[0].attr, node.value
        is_plain = isinstance(made, ast.Call) and called_name(made) in _RECURRENT and fits(made)
        if is_plain and name not in found:
            found[name] = node.lineno
        else:
            others.add(name)
    return {name: line for name, line in found.items() if name not in others}


def _taken(method: ast.FunctionDef, layers: dict[str, int]) -> tuple[ast.Subscript, str] | None:
    """Where a method takes ``[:, -1]`` of the output of a layer, by a name of one value."""
    made: dict[str, list[str]] = {}
    for node in ast.walk(method):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            first = target.elts[0] if isinstance(target, ast.Tuple) else None
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    layer = _layer(node.value) if part is first else ""  # type: ignore[attr-defined]
                    made.setdefault(part.id, []).append(layer)
    for node in ast.walk(method):
        name = _last_column(node)
        if name and len(made.get(name, ())) == 1 and made[name][0] in layers:
            return node, made[name][0]  # type: ignore[return-value]
    return None


def _last_column(node: ast.AST) -> str:
    """The variable in ``name[:, -1]`` or ``name[:, -1, :]``; empty: it is something else."""
    match node:
        case ast.Subscript(
            value=ast.Name(id=str(name)),
            slice=ast.Tuple(
                elts=[
                    ast.Slice(lower=None, upper=None, step=None),
                    ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)),
                    *rest,
                ]
            ),
        ) if len(rest) < 2:
            return name
    return ""


def _layer(value: ast.expr) -> str:
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return name
    return ""


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
