"""Means that are divided by the number of their values once more."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import last_name
from agviz.analysis.steps.finding import StepFinding
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import ForwardOpRow

_LEAST: Final = 1_000
"""Smaller numbers may be of micro batches, of heads, of terms."""
_MOST_OPS: Final = 20_000
_DIVISIONS: Final = frozenset({"__truediv__", "div", "div_", "divide", "true_divide"})
_DIVISOR: Final = re.compile(r"tensor, (\d+)(?:\.0*)?$")
_WHOLE_MEAN: Final = re.compile(r"tensor(, dtype=None)?|")
_MEAN_LOSS: Final = re.compile(r"\breduction='mean'")


def divided_again(run: RunSteps) -> Iterator[StepFinding]:
    """A mean over all values of a tensor that is divided by their number, or that of a sample's."""
    if not run.passes:
        return
    means: dict[int, ForwardOpRow] = {}
    for op in run.trace.forward_ops(run.passes[0].id, limit=_MOST_OPS):
        if _is_mean(op):
            means[op.outputs[0].tensor] = op
        divisor = _divisor(op)
        mean = means.get(op.inputs[0].tensor) if divisor else None
        shape = None if mean is None else mean.inputs[0].shape
        if mean is None or shape is None or divisor not in _counts(shape):
            continue
        yield StepFinding(
            kind="divided again",
            heading=f"a mean is divided by {divisor:,}, the number of its values",
            frame=op.frame,
            paragraph=(
                f"{last_name(mean)}() has taken the mean over {write_shape(shape)}"
                f" already; divided by {divisor:,} once more, the loss and all of its gradients are"
                " as many times too small. Leave the division out, or sum (reduction='sum')"
                " before it."
            ),
        )
        return


def _is_mean(op: ForwardOpRow) -> bool:
    if not op.inputs or not op.outputs or op.outputs[0].shape or not op.outputs[0].requires_grad:
        return False
    if last_name(op) == "mean":
        return _WHOLE_MEAN.fullmatch(op.arguments) is not None
    return _MEAN_LOSS.search(op.arguments) is not None


def _divisor(op: ForwardOpRow) -> int:
    """The number that a single number is divided by; 0: it is none."""
    found = _DIVISOR.match(op.arguments) if last_name(op) in _DIVISIONS and op.inputs else None
    return int(found[1]) if found is not None and not op.inputs[0].shape else 0


def _counts(shape: tuple[int, ...]) -> set[int]:
    """How many values there are, and how many of each sample."""
    return {count for count in (math.prod(shape), math.prod(shape[1:])) if count >= _LEAST}
