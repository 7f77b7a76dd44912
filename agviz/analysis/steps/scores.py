"""What is given to a softmax: masks that are no masks, cosines, a batch held against itself.

Note [Scores]
The last pass of each line is read from its softmax down, through views and products with one
number. The number is measured: it is the norm of the gradient behind the product over that before.

A factor of 0 before a softmax leaves nothing out, as e^0 is 1. That zeros are in the factor shows
in the gradient, which has more of them behind the product; that the factor is a mask, and no data,
its text (:mod:`agviz.analysis.steps.masks`).

Cosines lie between -1 and 1. Of logits between -c and c no class of n gets a share larger than
1 / (1 + (n - 1) e^(-2c)), and a product of a batch of rows of length 1 with itself has its largest
number on the diagonal, so that no other class gets more than a half.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.measures import number
from agviz.analysis.sides import below_of, kind_of
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.masks import MaskText
from agviz.traces.rows import visible
from agviz.words.shapes import write_shape
from agviz.words.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import NodeRow

_MOST_NODES: Final = 20_000
_PASSES_APART: Final = 8
"""Among which the last one of each line is looked at."""
_SOFTMAXES: Final = frozenset({"LogSoftmax", "Logsumexp", "SafeSoftmax", "Softmax"})
_VIEWS: Final = frozenset(
    {"Alias", "AsStrided", "Clone", "Expand", "Permute", "Reshape", "ReshapeAlias", "Squeeze", "T"}
    | {"ToCopy", "Transpose", "UnsafeView", "Unsqueeze", "View"}
)
_SCALES: Final = frozenset({"Div", "Mul"})
_PRODUCTS: Final = frozenset({"Bmm", "Mm"})
_CHOOSING: Final = frozenset({"Gather", "Index", "NllLoss"})
"""What takes one class for each row."""
_LENGTHS: Final = frozenset({"LinalgVectorNorm", "Norm"})
_GUARDS: Final = frozenset({"Add", "ClampMin", "Maximum"})
_FILLING: Final = frozenset({"MaskedFill", "Where"})
_MOST_STEPS: Final = 12
_LEAST_CLASSES: Final = 8
_LEAST_SHARE: Final = 0.4
"""Of the loss of a guess, that can't be got below."""
_LEAST_PASSES: Final = 4
_NEARLY: Final = 0.99
_DIM: Final = re.compile(r"[sS]oftmax\([^()]*?(?:dim\s*=\s*|,\s*|\()(-?\d+)\)")


class _Scores(NamedTuple):
    """What a softmax is given."""

    softmax: NodeRow
    node: int
    """Index of the node that made them, below views and products with one number."""
    scale: float | None
    """By what they were multiplied; None: by something that is trained, or not measured."""
    scaling: NodeRow | None
    """The node of the last such product; None: there is none."""


def scores_given(run: RunSteps) -> Iterator[StepFinding]:
    """What is wrong with what a softmax is given; the first of each kind. Note [Scores]."""
    known: set[str] = set()
    for flow in _flows(run):
        for scores in _scores(flow):
            for rule in (_of_masks, _of_cosines, _of_itself):
                found = rule(run, flow, scores)
                if found is not None and found.kind not in known:
                    known.add(found.kind)
                    yield found


def _of_masks(run: RunSteps, flow: GradientFlow, scores: _Scores) -> StepFinding | None:
    """A mask that scores are multiplied by."""
    node = flow.nodes[scores.node]
    factor = _zeroing_factor(run, flow, scores)
    if not factor:
        return None
    return StepFinding(
        kind="zero scores",
        heading=f"scores are multiplied by 0 where {factor} is 0, and still take part",
        frame=node.frame,
        paragraph=(
            "A softmax takes e to the power of its scores, and e^0 is 1: 0 is a score like any"
            " other, larger than all that are negative. What is to be left out keeps its share in"
            f" the sum at {_line(scores.softmax)}. Use masked_fill(mask == 0, float('-inf')) in the"
            " place of the product, or -1e9 where all of a row may be left out."
        ),
        evidence=(f"node {node.index} ({node.name})",),
    )


def _of_cosines(run: RunSteps, flow: GradientFlow, scores: _Scores) -> StepFinding | None:
    """Cosines that are logits of a loss, without a scale that lets one class get ahead."""
    most, scaling = scores.scale, scores.scaling
    if kind_of(flow, scores.softmax.index) != "LogSoftmax" or most is None:
        return None
    if most > 1 or (scaling is not None and most > _NEARLY):
        return None
    shape = _given(scores.softmax)
    classes = _size(shape, _axis(scores.softmax, len(shape)))
    least = math.log1p((classes - 1) * math.exp(-2 * most))
    if classes < _LEAST_CLASSES or least < _LEAST_SHARE * math.log(classes):
        return None
    if not _is_of_classes(flow, scores.softmax.index) or not _are_cosines(flow, scores.node):
        return None
    losses = _losses(run, flow)
    if len(losses) < _LEAST_PASSES or min(losses) < _NEARLY * least:
        return None
    node = scaling or flow.nodes[scores.node]
    scaled = "They have no scale" if scaling is None else f"They are multiplied by {number(most)}"
    return StepFinding(
        kind="cosine logits",
        heading=f"cosines are logits of {classes:,} classes: the loss stays above {number(least)}",
        frame=node.frame,
        paragraph=(
            f"{scaled}, so all logits lie between {number(-most)} and {number(most)}, and the right"
            f" class gets {percent(math.exp(-least))} at most, however far ahead it is; a guess has"
            f" a loss of {number(math.log(classes))}. Divide cosines by a temperature such as 0.07,"
            " or multiply them by a scale that is trained."
        ),
        evidence=(f"the last losses: {', '.join(map(number, losses[-3:]))}",),
    )


def _of_itself(run: RunSteps, flow: GradientFlow, scores: _Scores) -> StepFinding | None:
    """Similarities of a batch with itself whose diagonal is left in."""
    sides, shape = _sides(flow, scores.node), _given(scores.softmax)
    is_square = len(shape) >= 2 and shape[-1] == shape[-2] >= _LEAST_CLASSES
    if len(sides) != 2 or sides[0] != sides[1] or not is_square:
        return None
    whole = _normalised(flow, sides[0], _summed(flow, scores.node))
    if whole is None or not below_of(flow, whole):
        return None  # a leaf holds no batch
    if not _chooses(flow, scores) or min(_losses(run, flow), default=0.0) < math.log(2):
        return None
    if _takes_its_own(run, flow, scores):
        return None
    node = flow.nodes[scores.node]
    return StepFinding(
        kind="with itself",
        heading="a batch is held against itself, and each sample is one of its own negatives",
        frame=node.frame,
        paragraph=(
            f"{write_shape(shape)} are cosines of one tensor with itself: on the diagonal is each"
            " sample with itself, a cosine of 1, the largest of its row. No other class can get"
            " more than half of the sum, so that the loss stays above"
            f" {number(math.log(2))}. Leave it out: scores.fill_diagonal_(float('-inf')), or"
            " masked_fill with torch.eye(n, dtype=torch.bool)."
        ),
        evidence=(f"node {node.index} ({node.name}) leads twice to node {sides[0]}",),
    )


def _flows(run: RunSteps) -> Iterator[GradientFlow]:
    """The last pass of each line that calls backward."""
    by_line = {visible(run.trace.call_site(task.id)): task for task in run.passes[-_PASSES_APART:]}
    for task in by_line.values():
        if task.nodes > _MOST_NODES:
            continue
        labels = run.trace.node_labels(task.id, 0, task.nodes)
        if any(base_name(each.name) in _SOFTMAXES for each in labels):
            yield GradientFlow(run.trace, task.id)


def _scores(flow: GradientFlow) -> Iterator[_Scores]:
    for node in flow.nodes:
        if kind_of(flow, node.index) not in _SOFTMAXES:
            continue
        below = below_of(flow, node.index)
        index, scale, scaling = (below[0] if below else node.index), 1.0, None
        is_known = True
        for _ in range(_MOST_STEPS):
            below, kind = below_of(flow, index), kind_of(flow, index)
            if kind in _SCALES and below and _is_one_number(flow, index):
                by = _measured_scale(flow, index) if len(below) == 1 else None
                is_known &= by is not None
                scale *= by or 1.0
                scaling = scaling or flow.nodes[index]
            elif kind not in _VIEWS or len(below) != 1:
                break
            index = below[0]
        if index != node.index:
            yield _Scores(node, index, scale if is_known else None, scaling)


def _is_one_number(flow: GradientFlow, index: int) -> bool:
    """Whether a product is with one number, or a quotient by one."""
    saved = {row.name: row.shape for row in flow.trace.saved(flow.graph_task, index)}
    names = ("other",) if kind_of(flow, index) == "Div" else ("other", "self")
    whole = next(iter(flow.nodes[index].input_shapes or ()), None)
    shapes = [shape for name in names if (shape := saved.get(name)) is not None]
    return (
        whole is not None and math.prod(whole) > 1 and any(math.prod(each) == 1 for each in shapes)
    )


def _measured_scale(flow: GradientFlow, index: int) -> float | None:
    (_, came), (_, gave) = flow.input(index, 0), flow.output(index, 0)
    if gave is None:
        gave = flow.output(index, 1)[1]
    if came is None or gave is None or not came.norm or not gave.norm:
        return None
    return gave.norm / came.norm


def _given(softmax: NodeRow) -> tuple[int, ...]:
    return next(iter(softmax.output_shapes or ()), None) or ()


def _line(node: NodeRow) -> str:
    return str(node.frame) if node.frame is not None else node.name


# -- masks -------------------------------------------------------------------------------------


def _zeroing_factor(run: RunSteps, flow: GradientFlow, scores: _Scores) -> str:
    """What scores are multiplied by, as it is written, where that is a mask; empty: it is none."""
    node = flow.nodes[scores.node]
    kind, below = kind_of(flow, node.index), below_of(flow, node.index)
    is_product = kind == "Mul" or node.short_name == "CopySlices"
    if not is_product or len(below) != 1 or not node.stack or node.stack[-1].hidden:
        return ""
    (_, came), (_, gave) = flow.input(node.index, 0), flow.output(node.index, 0)
    if gave is None:
        gave = flow.output(node.index, 1)[1]
    whole = _given(scores.softmax)
    if came is None or gave is None or not whole:
        return ""
    if came.numbers != gave.numbers or not came.zero < gave.zero < gave.numbers:
        return ""
    if _is_masked_after(flow, scores.softmax.index):
        return ""
    axis = _axis(scores.softmax, len(whole))
    saved = flow.trace.saved(flow.graph_task, node.index)
    if any(row.shape is None or _size(row.shape, axis) == 1 for row in saved):
        return ""
    return MaskText(run.trace).factor_at(node.frame) if node.frame is not None else ""


def _is_masked_after(flow: GradientFlow, index: int) -> bool:
    """Whether weights, too, are multiplied by data or filled, which takes out what was left in."""
    for _ in range(_MOST_STEPS):
        takers = [flow.nodes[edge.producer] for edge in flow.edges_into(index)]
        for taker in takers:
            kind, is_hidden = (
                kind_of(flow, taker.index),
                bool(taker.stack and taker.stack[-1].hidden),
            )
            is_product = kind == "Mul" and len(below_of(flow, taker.index)) == 1
            if kind in _FILLING or (
                is_product and not is_hidden and not _is_one_number(flow, taker.index)
            ):
                return True
        if len(takers) != 1 or kind_of(flow, takers[0].index) not in _VIEWS:
            return False
        index = takers[0].index
    return False


def _axis(softmax: NodeRow, count: int) -> int:
    """The dimension of a softmax, from the end, as far as its line says; else the last one."""
    found = _DIM.search("" if softmax.frame is None else softmax.frame.source)
    return -1 if found is None else int(found[1]) - (count if int(found[1]) >= 0 else 0)


def _size(shape: tuple[int, ...], axis: int) -> int:
    return shape[axis] if len(shape) >= -axis else 1


# -- cosines -----------------------------------------------------------------------------------


def _is_of_classes(flow: GradientFlow, index: int) -> bool:
    """Whether one class of each row is taken of what a node gives."""
    for _ in range(_MOST_STEPS):
        takers = [edge.producer for edge in flow.edges_into(index)]
        kinds = {kind_of(flow, taker) for taker in takers}
        if kinds & _CHOOSING:
            return True
        if len(takers) != 1 or not kinds <= _VIEWS | {"Neg"}:
            return False
        index = takers[0]
    return False


def _are_cosines(flow: GradientFlow, index: int) -> bool:
    """Whether a node multiplies rows of length 1."""
    sides, summed = _sides(flow, index), _summed(flow, index)
    return len(sides) == 2 and all(_normalised(flow, each, summed) is not None for each in sides)


def _summed(flow: GradientFlow, index: int) -> int:
    """Over how many numbers a product sums; 0: that is not known."""
    kind, below = kind_of(flow, index), below_of(flow, index)
    first = next(iter(flow.nodes[index].output_shapes if kind in _PRODUCTS else ()), None)
    if kind == "Sum" and below:
        first = next(iter(flow.nodes[below[0]].input_shapes or ()), None)
    return first[-1] if first else 0


def _sides(flow: GradientFlow, index: int) -> list[int]:
    """The nodes of both factors of a product of matrices, below views; empty: it is none."""
    kind, below = kind_of(flow, index), below_of(flow, index)
    if kind == "Sum" and len(below) == 1 and kind_of(flow, below[0]) == "Mul":
        below = below_of(flow, below[0])  # as cosine_similarity computes them
    elif kind not in _PRODUCTS:
        return []
    return [_below_views(flow, each) for each in below]


def _below_views(flow: GradientFlow, index: int) -> int:
    for _ in range(_MOST_STEPS):
        below = below_of(flow, index)
        if kind_of(flow, index) not in _VIEWS or len(below) != 1:
            break
        index = below[0]
    return index


def _normalised(flow: GradientFlow, index: int, size: int) -> int | None:
    """The node of what is divided by the length of its rows; None: a node does something else.

    Args:
        flow: the pass.
        index: of the node that is asked about.
        size: of the rows.
    """
    below = below_of(flow, index)
    if kind_of(flow, index) not in _SCALES or len(below) != 2:
        return None
    rows = next(iter(flow.nodes[index].input_shapes or ()), None) or (0,)
    lengths = flow.nodes[index].output_shapes[1]
    if kind_of(flow, below[1]) == "Expand":
        lengths = flow.nodes[below[1]].output_shapes[0]
    if rows[-1] != size or lengths is None or lengths[-1:] not in {(), (1,)}:
        return None
    whole, length = (_below_views(flow, each) for each in below)
    is_quotient = kind_of(flow, index) == "Div"
    for _ in range(_MOST_STEPS):
        kind, under = kind_of(flow, length), below_of(flow, length)
        if kind in _LENGTHS:
            is_own = bool(under) and _below_views(flow, under[0]) == whole
            return whole if is_own else None
        if kind in ({"Sqrt"} if is_quotient else {"Rsqrt"}) and under:
            return whole if _is_sum_of_squares(flow, under[0], whole) else None
        if kind not in _VIEWS | _GUARDS or len(under) != 1:
            return None
        (length,) = under
    return None


def _is_sum_of_squares(flow: GradientFlow, index: int, whole: int) -> bool:
    for wanted in ("Sum", "Pow"):
        for _ in range(_MOST_STEPS):
            kind, below = kind_of(flow, index), below_of(flow, index)
            if kind == wanted or (wanted == "Pow" and kind == "Mul"):
                break
            if kind not in _VIEWS | _GUARDS or len(below) != 1:
                return False
            (index,) = below
        else:
            return False
        below = below_of(flow, index)
        if not below:
            return False
        index = below[0]
    return {_below_views(flow, each) for each in below} == {whole}


def _losses(run: RunSteps, flow: GradientFlow) -> list[float]:
    """The losses of the passes of the same line, until that of a flow."""
    line = visible(run.trace.call_site(flow.graph_task))
    return [
        run.losses[task.id]
        for task in run.passes[-_PASSES_APART:]
        if task.id in run.losses and visible(run.trace.call_site(task.id)) == line
    ]


# -- a batch with itself -----------------------------------------------------------------------


def _chooses(flow: GradientFlow, scores: _Scores) -> bool:
    """Whether it is a loss in which each row has one class that is to win."""
    if kind_of(flow, scores.softmax.index) == "LogSoftmax":
        return _is_of_classes(flow, scores.softmax.index)
    if kind_of(flow, scores.softmax.index) != "Logsumexp":
        return False
    given = below_of(flow, scores.softmax.index)[0]
    return any(
        kind_of(flow, edge.producer) in {"Gather", "Index"}
        for each in {given, scores.node}
        for edge in flow.edges_into(each)
    )


def _takes_its_own(run: RunSteps, flow: GradientFlow, scores: _Scores) -> bool:
    """Whether the class of each row may be the sample itself: ``arange`` alone in the text."""
    takers = {edge.producer for edge in flow.edges_into(scores.softmax.index)}
    frames = [flow.nodes[each].frame for each in (*takers, scores.softmax.index)]
    return any(MaskText(run.trace).is_given_arange(frame) for frame in frames if frame is not None)
