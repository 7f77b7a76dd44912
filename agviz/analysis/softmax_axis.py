"""Weights of a softmax over the samples of a batch, in place of what is summed with them.

Note [What weights compete for]
Who averages values by the weights of a softmax normalises over the dimension that is summed. Where
the softmax was over another one, the weights that are summed don't add up to 1. Capsules and slots
are meant so: what competes there are outputs. So it is told of the first dimension only, where a
product of matrices takes it for that of independent samples, and it is as long as what the loss
takes; and only where the values are computed with gradients, as a target that a mask or an overlap
is measured by is not. Seen only with ``check_forward``, which records these functions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import last_name
from agviz.analysis.program_calls import last_passes, ops_of_pass
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow

    Users = Mapping[int, Sequence[ForwardOpRow]]

_MOST_STEPS: Final = 8
"""Views, casts and the like between the softmax and the product."""
_PRODUCTS: Final = frozenset({"__matmul__", "bmm", "matmul"})
_KEEPING: Final = frozenset({"contiguous", "dropout", "float", "half", "masked_fill", "to"})
"""Functions that leave each dimension where it is."""
_DIM: Final = re.compile(r"tensor, (?:dim=)?(-?\d+|None)")
_PAIR: Final = re.compile(r"tensor, (?:dim0=)?(-?\d+), (?:dim1=)?(-?\d+)")
_EQUATION: Final = re.compile(r"'([\w ]+),([\w ]+)->([\w ]*)'")


def softmax_axis(trace: Trace) -> StepFinding | None:
    """A softmax of the last pass that is over the samples; None: none is.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not trace.meta.check_forward:
        return None
    for task in last_passes(trace, 1):
        ops = [op for op in ops_of_pass(trace, task.id) if op.sequence_nr is not None]
        users: defaultdict[int, list[ForwardOpRow]] = defaultdict(list)
        for op in ops:
            for row in op.inputs:
                users[row.tensor].append(op)
        compared = [
            op.inputs[0].shape for op in ops if op.inputs and op.outputs[:1] and not _shape(op)
        ]
        samples = {shape[0] for shape in compared if shape}
        for op in ops:
            if last_name(op) == "softmax" and _dim(op) == 0 and _shape(op)[0] in samples - {1}:
                summing = _summing(op, users)
                if summing is not None:
                    return _told(op, *summing)
    return None


def _told(op: ForwardOpRow, product: ForwardOpRow, summed: int) -> StepFinding:
    shape = _shape(op)
    return StepFinding(
        kind="softmax axis",
        heading="a softmax is over the samples of the batch, not over what its weights sum",
        frame=op.frame,
        paragraph=(
            f"It is over dimension 0 of {list(shape)}, which has the {shape[0]:,} samples of the"
            f" loss. {last_name(product)} at {product.line} then sums over another dimension, of"
            f" size {summed:,}: the weights that it sums don't add up to 1, samples of a batch"
            " compete with each other, and a single sample gets weights of 1 throughout. Take the"
            " softmax over the dimension that is summed, most often dim=-1."
        ),
    )


def _summing(op: ForwardOpRow, users: Users) -> tuple[ForwardOpRow, int] | None:
    """The product that takes dimension 0 for samples, and the size that it sums over."""
    waiting = [(op, 0)]
    for _ in range(_MOST_STEPS):
        if not waiting:
            return None
        made, axis = waiting.pop()
        for user in users[made.outputs[0].tensor]:
            (place, *_) = [
                number
                for number, row in enumerate(user.inputs)
                if row.tensor == made.outputs[0].tensor
            ]
            summed = _summed(user, place, axis)
            if summed > 1 and user.inputs[1 - place].requires_grad:
                return user, summed
            moved = _moved(user, axis)
            if moved is not None:
                waiting.append((user, moved))
    return None


def _summed(op: ForwardOpRow, place: int, axis: int) -> int:
    """How many weights a product sums, which takes a dimension of them for samples; 0: it is none.

    Args:
        op: the function.
        place: of the weights, among its two arguments.
        axis: the dimension.
    """
    shapes = [row.shape or () for row in op.inputs]
    if len(shapes) != 2:
        return 0
    if last_name(op) == "einsum" and (written := _EQUATION.match(op.arguments)) is not None:
        letters, others, kept = (part.replace(" ", "") for part in written.groups())
        if place:
            letters, others = others, letters
        is_sample = letters[axis] in others and letters[axis] in kept
        sizes = [
            size
            for letter, size in zip(letters, shapes[place], strict=True)
            if letter not in kept and letter in others
        ]
        return max(sizes, default=0) if is_sample else 0
    is_product = last_name(op) in _PRODUCTS and min(map(len, shapes)) >= 3
    is_sample = is_product and axis < len(shapes[place]) - 2 and len(shapes[0]) == len(shapes[1])
    return shapes[place][-2 if place else -1] if is_sample else 0


def _moved(op: ForwardOpRow, axis: int) -> int | None:
    """Where a dimension is after a function; None: it is not known, or no longer there."""
    name, count = last_name(op), len(_shape(op))
    if name in _KEEPING:
        return axis
    if name in {"unsqueeze", "squeeze"} and (found := _DIM.match(op.arguments)) is not None:
        if found[1] == "None":
            return None
        dim = int(found[1])
        if name == "unsqueeze":
            return axis + (dim % count <= axis)
        return axis - (dim % (count + 1) < axis) if count < len(op.inputs[0].shape or ()) else axis
    if name in {"swapaxes", "transpose"} and (pair := _PAIR.match(op.arguments)) is not None:
        one, other = (int(each) % count for each in pair.groups())
        return {one: other, other: one}.get(axis, axis)
    return None


def _dim(op: ForwardOpRow) -> int:
    """The dimension of a softmax, as torch takes it where none is given; -1: it is not known."""
    found, count = _DIM.match(op.arguments), len(_shape(op))
    if found is None or count < 2:
        return -1
    return int(found[1]) % count if found[1] != "None" else int(count != 3)


def _shape(op: ForwardOpRow) -> tuple[int, ...]:
    return (op.outputs[0].shape or ()) if op.outputs else ()
