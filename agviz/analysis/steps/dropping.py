"""Functions that do something else than their text suggests: dropouts without end, lost sums.

Note [More rows than places]
``out[index] += rows`` reads, adds and writes once: of rows with one index, the last one is kept.
Where more numbers are written than there are places, some index comes twice, whatever it holds. The
same is so of ``out[index] = rows``, and of ``scatter``, unless rows that meet are equal: those that
the same index was used to take.
"""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import (
    OF_TORCH,
    called_name,
    nodes_beside,
    own_name,
    tree_of,
    values_named,
)
from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import calls
from agviz.traces.rows import visible
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_MOST_NODES: Final = 20_000
DROPS: Final = frozenset(
    {"alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"}
)
"""The dropouts of ``torch.nn.functional``."""
_BETWEEN: Final = 4
"""Nodes from a division to the norm in it."""
_PASSES: Final = 2
_WRITING: Final = ("IndexPutBackward", "ScatterBackward")
_PUTTING: Final = frozenset({"index_put", "index_put_"})
_SCATTERING: Final = frozenset({"scatter", "scatter_"})
"""Those that are given a dimension first."""
_PASSES_APART: Final = 8
"""Among which the last one of each line is looked at."""
_ROUNDED: Final = 1e-4
"""Of a gradient: what rounding leaves of it where all cancels."""


def lost(run: RunSteps) -> Iterator[StepFinding]:
    """Sums of the last passes that keep one of several rows. Note [More rows than places]."""
    for task in run.passes[-_PASSES:]:
        nodes = run.trace.nodes(task.id) if task.nodes <= _MOST_NODES else ()
        for node in nodes:
            shapes = node.output_shapes or ()
            whole, rows = next(iter(node.input_shapes or ()), None), shapes[-1] if shapes else None
            if not node.name.startswith("IndexPutBackward") or len(shapes) < 2:
                continue
            if whole is None or rows is None or math.prod(rows) <= math.prod(whole):
                continue
            if not _is_augmented(run, node.frame):
                continue
            yield StepFinding(
                kind="lost sums",
                heading="+= to indices that come more than once keeps one summand of each",
                frame=node.frame,
                paragraph=(
                    f"{list(rows)} is added into {list(whole)} by indices: more rows than places,"
                    " so that some index comes more than once. x[index] += y reads x[index], adds"
                    " and writes once: of several rows for one place only one is in the result,"
                    " while backward gives all of them a gradient. Use x.index_add_(0, index, y)"
                    " or index_put_ with accumulate=True."
                ),
            )
            return


def rows_replaced(run: RunSteps) -> Iterator[StepFinding]:
    """Rows of the last passes that replace each other. Note [More rows than places]."""
    for task in run.passes[-_PASSES:]:
        for node in run.trace.nodes(task.id) if task.nodes <= _MOST_NODES else ():
            shapes = node.output_shapes or ()
            whole, rows = next(iter(node.input_shapes or ()), None), shapes[-1] if shapes else None
            if not node.name.startswith(_WRITING) or len(shapes) < 2 or not whole or not rows:
                continue
            saved = run.trace.saved(task.id, node.index)
            rows = next((row.shape for row in saved if row.name == "index" and row.shape), rows)
            if math.prod(rows) <= math.prod(whole) or not _is_replaced(run, node.frame):
                continue
            yield StepFinding(
                kind="rows replaced",
                heading="of rows that are written to one index, only one stays",
                frame=node.frame,
                paragraph=(
                    f"{write_shape(rows)} is written into {write_shape(whole)} by indices: more"
                    " rows than places, so that some index comes more than once. A row replaces"
                    " what was written there before, in no fixed order, and nothing is summed,"
                    " while backward gives all of them a gradient. To sum them, use"
                    " index_add_(0, index, rows) or scatter_add_; for another reduction,"
                    " scatter_reduce_ or index_reduce_."
                ),
            )
            return


def alone(run: RunSteps) -> Iterator[StepFinding]:
    """Layer norms of the last passes over one value, which is its own mean."""
    for task in run.passes[-_PASSES:]:
        for node in run.trace.nodes(task.id) if task.nodes <= _MOST_NODES else ():
            shapes = node.output_shapes or ()
            if not node.name.startswith("NativeLayerNorm") or len(shapes) < 2:
                continue
            whole, weight = next(iter(node.input_shapes or ()), None), shapes[1]
            if whole is None or weight is None or math.prod(weight) != 1:
                continue
            yield StepFinding(
                kind="single values",
                heading="layer_norm over one feature gives its bias, whatever it is given",
                frame=node.frame,
                paragraph=(
                    f"It normalises {write_shape(whole)} over its last dimension, which has size"
                    " 1: each value less their mean, which is that value, is 0. So nothing of its"
                    " input reaches the loss, and what comes before it gets rounding noise for a"
                    " gradient, which Adam and its like follow. Normalise over the dimension that"
                    " holds several features, or leave it out."
                ),
            )
            return


def signs_only(run: RunSteps) -> Iterator[StepFinding]:
    """Numbers that are divided by their norm over one number, as by a cosine: their sign."""
    for task in run.passes[-_PASSES:]:
        flow = GradientFlow(run.trace, task.id) if task.nodes <= _MOST_NODES else None
        for node in flow.nodes if flow is not None else ():
            whole = next(iter(node.input_shapes or ()), None) or ()
            made = next(iter(node.output_shapes), None)
            is_norm = node.name.startswith("LinalgVectorNorm") and math.prod(whole) > 1
            if flow is None or not is_norm or made is None or math.prod(made) != math.prod(whole):
                continue
            if not _divides_its_own(flow, node.index):
                continue
            yield StepFinding(
                kind="single values",
                heading="numbers are divided by their norm over one number: that is their sign",
                frame=node.frame,
                paragraph=(
                    f"The norm of {write_shape(whole)} is taken over a dimension of size 1, as by"
                    " cosine_similarity or normalize with their default dim=1: it is the absolute"
                    " value, and what is divided by it is 1 or -1, whatever its size. So nothing"
                    " of it reaches the loss, and what comes before gets rounding noise for a"
                    " gradient. Take it over the dimension that holds the features (dim=-1)."
                ),
            )
            return


def _divides_its_own(flow: GradientFlow, norm: int) -> bool:
    """Whether what a norm is taken of is divided by it, but for views and a bound from below."""
    of = {edge.consumer for edge in flow.trace.edges_from(flow.graph_task, norm)}
    index = norm
    for _ in range(_BETWEEN):
        above = flow.edges_into(index)
        if len(above) != 1:
            return False
        index = above[0].producer
        if base_name(flow.nodes[index].name) == "Div":
            edges = flow.trace.edges_from(flow.graph_task, index)
            return above[0].output == 1 and any(
                edge.output == 0 and edge.consumer in of for edge in edges
            )
    return False


def mean_of_norm(run: RunSteps) -> Iterator[StepFinding]:
    """Batch norms of one feature whose mean is the loss, or a part of it: that is their bias."""
    by_line = {visible(run.trace.call_site(task.id)): task for task in run.passes[-_PASSES_APART:]}
    for task in by_line.values():
        flow = GradientFlow(run.trace, task.id) if task.nodes <= _MOST_NODES else None
        for node in flow.nodes if flow is not None else ():
            whole = next(iter(node.input_shapes or ()), None) or ()
            if flow is None or not node.name.startswith("NativeBatchNorm") or len(whole) < 2:
                continue
            _, came = next(iter(flow.inputs(node.index)), (None, None))
            _, gave = flow.output(node.index, 0)
            if whole[1] != 1 or came is None or gave is None or not came.norm:
                continue
            if came.min != came.max or (gave.norm or 0.0) > _ROUNDED * came.norm:
                continue
            yield StepFinding(
                kind="single values",
                heading="the mean of what batch_norm gives is its bias, whatever it is given",
                frame=node.frame,
                paragraph=(
                    f"In backward pass {task.id} each of the {came.numbers:,} samples gets the same"
                    " gradient, as of a mean. Batch norm takes the mean of the batch out before, so"
                    " that the sum of what it gives does not depend on its input: what comes before"
                    " it gets rounding noise for a gradient. Leave the norm out behind the last"
                    " layer."
                ),
            )
            return


def _is_augmented(run: RunSteps, frame: Frame | None) -> bool:
    """Whether a line is one like ``x[index] += y``, or ``x[index] = x[index] + y``."""
    return frame is not None and any(
        _is_sum_by_index(node)
        for node in ast.walk(tree_of(run.trace, frame.file))
        if isinstance(node, ast.stmt)
        and node.lineno <= frame.line <= (node.end_lineno or node.lineno)
    )


def _is_sum_by_index(node: ast.stmt) -> bool:
    match node:
        case ast.AugAssign(target=ast.Subscript(), op=ast.Add() | ast.Sub()):
            return True
        case ast.Assign(
            targets=[ast.Subscript() as target],
            value=ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right),
        ):
            return ast.unparse(target) in {ast.unparse(left), ast.unparse(right)}
    return False


def _is_replaced(run: RunSteps, frame: Frame | None) -> bool:
    """Whether a line writes by indices without a reduction, and not what these took before."""
    if frame is None:
        return False
    nodes = [
        node for node in nodes_beside(run.trace, frame) if isinstance(node, ast.expr | ast.stmt)
    ]
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            values.setdefault(ast.unparse(node.targets[0]), []).append(node.value)
    for node in nodes:
        is_there = node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        written = _written_by_index(node) if is_there else None
        if written is not None:
            index, rows = written
            taken = {
                ast.unparse(each.slice)
                for value in (rows, *values.get(ast.unparse(rows), ()))
                for each in ast.walk(value)
                if isinstance(each, ast.Subscript)
            }
            return taken.isdisjoint({index, f"({index},)", index.strip("(,)")})
    return False


def _written_by_index(node: ast.AST) -> tuple[str, ast.expr] | None:
    """The index, as it is written, and what is written there; None: another kind of statement."""
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=index)], value=rows):
            return ast.unparse(index), rows
        case ast.Call(args=[index, rows], keywords=[]) if called_name(node) in _PUTTING:
            return ast.unparse(index), rows
        case ast.Call(args=[ast.expr(), index, rows], keywords=[]) if (
            called_name(node) in _SCATTERING
        ):
            return ast.unparse(index), rows
    return None


def swapped_bounds(run: RunSteps) -> Iterator[StepFinding]:
    """Clamps of the last pass whose smallest value is written larger than the largest."""
    task = run.passes[-1] if run.passes else None
    if task is None or task.nodes > _MOST_NODES:
        return
    frames = [node.frame for node in run.trace.nodes(task.id) if "Clamp" in node.name]
    for frame in dict.fromkeys(filter(None, frames)):
        tree = tree_of(run.trace, frame.file)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or node.lineno != frame.line:
                continue
            bounds = _bounds(tree, node)
            if bounds is None or bounds[0] <= bounds[1]:
                continue
            least, most = map(number, bounds)
            yield StepFinding(
                kind="bounds swapped",
                heading=f"clamp is given the bounds {least} and {most}: all becomes {most}",
                frame=frame,
                paragraph=(
                    "The first bound, min, is larger than the second, max. torch does not complain:"
                    f" it takes the larger of each value and {least}, then the smaller of that and"
                    f" {most}, so that everything is {most}, and no gradient flows back. Swap the"
                    " two, or name them: min=, max=."
                ),
            )
            return


def _bounds(tree: ast.Module, call: ast.Call) -> tuple[float, float] | None:
    """The numbers that a call clamps between; None: it does not, or they are not in the text."""
    if called_name(call) not in {"clamp", "clamp_", "clip", "clip_"}:
        return None
    is_function = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "torch"
    words = {word.arg: word.value for word in call.keywords}
    given = call.args[1:] if is_function else call.args
    both = [*given[:2], *(words[name] for name in ("min", "max")[len(given) :] if name in words)]
    if len(both) != 2:
        return None
    least, most = (_value(tree, one) for one in both)
    return None if least is None or most is None else (least, most)


def _value(tree: ast.Module, written: ast.expr) -> float | None:
    """A number in the text, or the only one that a name is given; None: it is another thing."""
    if isinstance(written, ast.UnaryOp) and isinstance(written.op, ast.USub):
        value = _value(tree, written.operand)
        return None if value is None else -value
    if isinstance(written, ast.Constant) and isinstance(written.value, int | float):
        return float(written.value)
    name = own_name(written)
    values = set(values_named(tree, name)) if name else set()
    found = values.pop() if len(values) == 1 else math.nan
    return None if math.isnan(found) else found


def always(run: RunSteps) -> Iterator[StepFinding]:
    """Dropouts of the last pass that ``eval()`` does not turn off, where the program calls it."""
    task = run.passes[-1] if run.passes else None
    if task is None or task.nodes > _MOST_NODES:
        return
    stacks = {node.frame: node.stack for node in run.trace.nodes(task.id) if node.frame is not None}
    dropping = {
        (one.file, one.line)
        for beside in {frame.file: frame for frame in stacks}.values()
        for one in calls(run.trace, beside, _drops_always)
        if one.function != "<module>"
    }
    found = [frame for frame in stacks if (frame.file, frame.line) in dropping]
    if not found:
        return
    evaluated, trained = _switched(run, visible(run.trace.call_site(task.id)))
    for frame in sorted(found, key=lambda one: (one.file, one.line)):
        owners = {*trained, *_called(stacks[frame])}
        if not owners.isdisjoint(evaluated) and _is_method(run, frame):
            yield StepFinding(
                kind="always drops",
                heading="this dropout goes on in evaluation mode: it is not given training",
                frame=frame,
                paragraph=(
                    "A function of torch.nn.functional does not know the module that calls it, and"
                    " drops as in training unless it is given what to do: eval(), which this"
                    " program calls, does not turn it off, so that evaluation is random and worse."
                    " Give it training=self.training (dropout_p=p if self.training else 0.0), or"
                    " use nn.Dropout. If dropping is meant there, say so by training=True."
                ),
            )
            return


def _switched(run: RunSteps, beside: Frame | None) -> tuple[set[str], set[str]]:
    """What ``eval()`` is called of in the file of a frame, and what ``train()`` is."""
    owners: dict[str, set[str]] = {"eval": set(), "train": set()}

    def note(_call: ast.Call, name: str) -> bool:
        owner, _, method = name.rpartition(".")
        if method in owners:
            owners[method].add(owner)
        return False

    calls(run.trace, beside, note)
    return owners["eval"], owners["train"]


def _called(stack: Sequence[Frame]) -> Iterator[str]:
    """The names that the program's lines of a stack call."""
    for frame in stack:
        if not frame.hidden:
            yield from re.findall(r"([\w.]+)\(", frame.source)


def _is_method(run: RunSteps, frame: Frame) -> bool:
    """Whether the line is in a method of a class with ``self``, as that of a module."""
    return any(
        isinstance(node, ast.FunctionDef)
        and node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        and [argument.arg for argument in node.args.args[:1]] == ["self"]
        for node in ast.walk(tree_of(run.trace, frame.file))
    )


def _drops_always(call: ast.Call, name: str) -> bool:
    given = {word.arg: word.value for word in call.keywords}
    if None in given:
        return False
    if called_name(call) == "scaled_dot_product_attention":
        share = given.get("dropout_p")
        return isinstance(share, ast.Constant) and bool(share.value)
    is_function = name.rpartition(".")[0] in OF_TORCH and called_name(call) in DROPS
    share = call.args[1] if len(call.args) > 1 else given.get("p")
    is_on = not isinstance(share, ast.Constant) or bool(share.value)
    return is_function and is_on and len(call.args) < 3 and "training" not in given
