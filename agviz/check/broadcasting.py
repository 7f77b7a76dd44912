"""Losses of tensors whose shapes only fit because both are expanded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from torch import Tensor

from agviz.check.saved import seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LOSSES: Final = {
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
}
_SUBTRACTIONS: Final = {"sub", "__sub__", "__rsub__", "rsub", "subtract"}
_REDUCTIONS: Final = {"mean", "sum"}
_SHAPING: Final = ("Expand", "Index", "Reshape", "Select", "Slice", "Unsqueeze", "View")
"""Nodes by which a column is made on purpose."""
_MOST_STEPS: Final = 6
"""Nodes from a column to where it was made."""
_MOST_NODES: Final = 24
"""Between a difference and the sum of it."""


class ExpandedLoss(NamedTuple):
    """A loss of tensors that were both expanded."""

    captured: Any
    """The stack of the call that expands them."""
    one: tuple[int, ...]
    other: tuple[int, ...]


def expanded_loss(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], captured: Any
) -> ExpandedLoss | None:
    """A loss function of torch that is given shapes of which both must be expanded."""
    if name.rpartition(".")[2] not in _LOSSES:
        return None
    tensors = (*args[:2], kwargs.get("input"), kwargs.get("target"))
    shapes = [tuple(each.shape) for each in tensors if isinstance(each, Tensor)]
    if len(shapes) < 2 or not both_expand(*shapes[:2]):
        return None
    return ExpandedLoss(captured, *shapes[:2])


def is_outer_difference(name: str, args: Sequence[Any]) -> bool:
    """Whether this subtracts a column from a flat tensor of the same length, by mistake.

    A column that is a view, like ``x[:, None]``, or is made of one, is meant to be expanded.
    """
    if name.rpartition(".")[2] not in _SUBTRACTIONS or len(args) < 2:
        return False
    if not all(isinstance(each, Tensor) for each in args[:2]):
        return False
    column, flat = sorted(cast("Sequence[Tensor]", args[:2]), key=lambda each: -each.dim())
    return (
        column.dim() == flat.dim() + 1 == 2
        and tuple(column.shape) == (len(flat), 1)
        and len(flat) > 1
        and not _is_made_to_expand(column)
    )


def _is_made_to_expand(column: Tensor) -> bool:
    if column._is_view():
        return True
    node: Any = column.grad_fn
    for _ in range(_MOST_STEPS):
        if node is None:
            return False
        if node.name().startswith(_SHAPING):
            return True
        below = [child for child, _ in node.next_functions if child is not None]
        node = below[0] if len(below) == 1 else None
    return False


def reduced_difference(name: str, result: Any) -> Any:
    """The stack of such a difference that is now summed up to a scalar; None: there is none."""
    if name.rpartition(".")[2] not in _REDUCTIONS:
        return None
    if not isinstance(result, Tensor) or result.dim() or result.grad_fn is None:
        return None
    waiting: list[Any] = [result.grad_fn]
    met = set(waiting)
    for _ in range(_MOST_NODES):
        if not waiting:
            break
        node = waiting.pop(0)
        then = seen(node)
        if then is not None and then.is_outer:
            return then.captured
        below = [child for child, _ in node.next_functions if child is not None]
        if node is not result.grad_fn:  # what is computed of it element by element is as large
            shape = node._input_metadata[0].shape
            below = [child for child in below if _gives(child, shape)]
        waiting += [child for child in below if child not in met]
        met.update(below)
    return None


def _gives(node: Any, shape: Sequence[int]) -> bool:
    """Whether what a node's function gave has a shape."""
    given = node._input_metadata
    return bool(given) and tuple(given[0].shape) == tuple(shape)


def both_expand(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether the two shapes broadcast to one that is larger than either."""
    if one == other:
        return False
    try:
        together: int = math.prod(torch.broadcast_shapes(one, other))
    except RuntimeError:
        return False
    return together > max(math.prod(one), math.prod(other))
