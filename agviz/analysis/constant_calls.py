"""Calls that gave the same number throughout, whatever they were given."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import last_name
from agviz.analysis.measures import number
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.measure.values import Health
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow

_SOFTMAX: Final = {"softmax": 1, "log_softmax": 0, "softmin": 1}
"""What these give over a single entry."""
_OVER_CLASSES: Final = frozenset({"cross_entropy", "nll_loss"})
_AXIS: Final = re.compile(r"\btensor, (?:.*\bdim=)?(-?\d+)\b")
_NORMALISED: Final = re.compile(r"tensor, (?:normalized_shape=)?\[(\d+(?:, \d+)*)\]")
_GROUPED: Final = frozenset({"group_norm", "instance_norm"})
_GROUPS: Final = re.compile(r"tensor, (?:num_groups=)?(\d+)\b")
_GRID: Final = "grid_sample"
_IGNORED: Final = re.compile(r"\bignore_index=(-?\d+)")


def why_constant(op: ForwardOpRow, health: Callable[[ForwardTensorRow], Health | None]) -> str:
    """What shows that a call did not depend on its arguments; empty where nothing does.

    Args:
        op: the call.
        health: what was measured of a tensor that it was given; None: nothing.

    Returns:
        The end of a sentence, as ``softmax() over one entry gives 1 whatever it is given``.
    """
    name = last_name(op)
    shape = op.inputs[0].shape if op.inputs else None
    if single := of_single_values(op):
        return single
    if shape is not None and _entries(op, name, shape) == 1:
        what = f"1 class ({write_shape(shape)})" if name == "cross_entropy" else "one entry"
        return f"{name}() over {what} gives {_SOFTMAX.get(name, 0)} whatever it is given"
    if name == _GRID and "nearest" in op.arguments:
        return (
            f"{name}() in mode nearest has a derivative of 0 by its coordinates; bilinear has one"
        )
    given = op.outputs[0].health if len(op.outputs) == 1 else None
    if given is None or given.numbers < 2 or given.min is None or given.min != given.max:
        return ""
    said = f"{name}() gave {number(given.min)} throughout"
    grid = health(op.inputs[1]) if name == _GRID and len(op.inputs) > 1 else None
    if grid is not None and grid.min is not None and grid.max is not None and not given.min:
        span = f"{number(grid.min)} to {number(grid.max)}"
        said += f", at coordinates from {span}; outside of [-1, 1] there is nothing to sample"
    return said


def equal_throughout(
    factors: Sequence[ForwardTensorRow], health: Callable[[ForwardTensorRow], Health | None]
) -> str:
    """That a factor is one number throughout, in the end of a sentence; empty: none is."""
    for row in factors:
        of = health(row)
        if of is not None and of.numbers > 1 and of.min is not None and of.min == of.max:
            name = row.parameter or "what it is multiplied by"
            return f": {name} is {number(of.min)} throughout"
    return ""


def of_single_values(op: ForwardOpRow) -> str:
    """That a call normalises single values, in the end of a sentence; empty: it does not."""
    name = last_name(op)
    shape = op.inputs[0].shape if op.inputs else None
    if name == "layer_norm" and _features(op) == 1:
        return "layer_norm() over one feature gives its bias whatever it is given"
    if name in _GROUPED and shape is not None and _values(op, name, shape) == 1:
        return f"{name}() over groups of one value each gives its bias whatever it is given"
    return ""


def why_ignored(op: ForwardOpRow) -> str:
    """That no target of a loss over classes counts, of one whose derivative is zero throughout.

    Args:
        op: its call, to which a gradient came.

    Returns:
        The end of a sentence; empty: it is no such loss, or classes have weights.
    """
    ignored = _IGNORED.search(op.arguments)
    if last_name(op) not in _OVER_CLASSES or ignored is None or "weight=None" not in op.arguments:
        return ""
    return f"all targets are ignore_index ({ignored[1]})"


def span(op: ForwardOpRow, health: Callable[[ForwardTensorRow], Health | None]) -> str:
    """From where to where a call's first argument was; empty where that was not measured."""
    given = health(op.inputs[0]) if op.inputs else None
    if given is None or given.min is None or given.max is None:
        return ""
    least, most = number(given.min), number(given.max)
    return f"it was {least}" + (f" to {most}" if least != most else "")


def _features(op: ForwardOpRow) -> int:
    """Over how many features a layer is normalised; 0: it is not known."""
    shape = _NORMALISED.match(op.arguments)
    return 0 if shape is None else math.prod(map(int, shape[1].split(",")))


def _values(op: ForwardOpRow, name: str, shape: tuple[int, ...]) -> int:
    """How many values of a sample are normalised together; 0: it is not known."""
    if name == "instance_norm":
        return math.prod(shape[2:])
    groups = _GROUPS.match(op.arguments)
    return 0 if groups is None or len(shape) < 2 else math.prod(shape[1:]) // int(groups[1])


def _entries(op: ForwardOpRow, name: str, shape: tuple[int, ...]) -> int:
    """Over how many entries a softmax is taken; 0: it is none, or it is not known."""
    if name == "cross_entropy":
        return shape[1 if len(shape) > 1 else 0] if shape else 0
    axis = _AXIS.match(op.arguments) if name in _SOFTMAX else None
    if axis is None or not -len(shape) <= int(axis[1]) < len(shape):
        return 0
    return shape[int(axis[1])]
