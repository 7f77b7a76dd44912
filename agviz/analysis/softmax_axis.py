"""Weights of a softmax over the samples of a batch, in place of what is summed with them.

Note [What weights compete for]
Weights whose softmax was over another dimension than is summed don't add up to 1. Capsules and
slots are meant so: outputs compete there. So it is told of the first dimension only, where a
product of matrices takes it for independent samples, it is as long as what the loss takes, and the
values are computed with gradients: an overlap with a target is no average.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import last_name
from agviz.analysis.program_calls import last_passes, ops_of_pass, users_of
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
_VIEWS: Final = frozenset({"squeeze", "swapaxes", "transpose", "unsqueeze"})
_MOVING: Final = re.compile(r"tensor, (?:dim0?=)?(-?\d+)(?:, (?:dim1=)?(-?\d+))?")
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
        users = users_of(ops)
        compared = [op.inputs[0].shape for op in ops if op.inputs and not _shape(op)]
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
    waiting = [op]
    for _ in range(_MOST_STEPS):
        if not waiting:
            break
        made = waiting.pop().outputs[0].tensor
        for user in users[made]:
            place = [row.tensor for row in user.inputs].index(made)
            summed = _summed(user, place)
            if summed > 1 and user.inputs[1 - place].requires_grad:
                return user, summed
            if _keeps(user):
                waiting.append(user)
    return None


def _summed(op: ForwardOpRow, place: int) -> int:
    """How many weights, at a place, a product sums that takes dimension 0 for samples; 0: none."""
    shapes = [row.shape or () for row in op.inputs]
    if len(shapes) != 2:
        return 0
    if last_name(op) == "einsum" and (written := _EQUATION.match(op.arguments)) is not None:
        *both, kept = (part.replace(" ", "") for part in written.groups())
        letters, others = both[place], both[1 - place]
        sizes = zip(letters, shapes[place], strict=True)
        summed = [size for each, size in sizes if each not in kept and each in others]
        is_sample = letters[0] in kept and letters[0] in others
        return max(summed, default=0) if is_sample else 0
    is_product = last_name(op) in _PRODUCTS and len(shapes[0]) == len(shapes[1]) >= 3
    return shapes[place][-2 if place else -1] if is_product else 0


def _keeps(op: ForwardOpRow) -> bool:
    """Whether what was in dimension 0 is there after a function, as far as it is known."""
    moving = _MOVING.fullmatch(op.arguments) if last_name(op) in _VIEWS else None
    count = max(len(_shape(op)), len(op.inputs[0].shape or ()))
    is_known = moving is not None and all(int(each) % count for each in moving.groups() if each)
    return is_known or last_name(op) in _KEEPING


def _dim(op: ForwardOpRow) -> int:
    """The dimension of a softmax, as torch takes it where none is given; -1: it is not known."""
    found, count = _DIM.match(op.arguments), len(_shape(op))
    if found is None or count < 2:
        return -1
    return int(found[1]) % count if found[1] != "None" else int(count != 3)


def _shape(op: ForwardOpRow) -> tuple[int, ...]:
    return (op.outputs[0].shape or ()) if op.outputs else ()
