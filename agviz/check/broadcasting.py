"""Losses of tensors whose shapes only fit because both are expanded.

Note [Expanded by mistake]
A column of shape (N, 1) and a flat tensor of shape (N,) give (N, N), each number of the one with
each of the other. What came of it is followed through functions that work number by number, until
it is summed up to a scalar with a graph, or given to a loss. It is meant, and followed no more,
where the column was made to be expanded (``x[:, None]``), where the flat tensor is a view of the
column or a grid (``linspace``), and where it meets another tensor of shape (N, N), as a mask of
pairs or distances.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from agviz.check.saved import nodes_below

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

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
_EXPANDING: Final = frozenset({"add", "div", "maximum", "minimum", "mul", "rsub", "sub", "truediv"})
"""Functions of two tensors, as :func:`_last` names them."""
_ALSO: Final = {"subtract": "sub", "multiply": "mul", "divide": "div", "radd": "add", "rmul": "mul"}
_NUMBER_BY_NUMBER: Final = _EXPANDING | {
    *("abs", "clamp", "clamp_max", "clamp_min", "exp", "expm1", "float", "gelu", "log", "log1p"),
    *("logsigmoid", "neg", "pow", "relu", "rpow", "rtruediv", "sigmoid", "softplus", "sqrt"),
    *("square", "tanh", "to", "where"),
    *("eq", "ge", "gt", "le", "logical_and", "logical_not", "logical_or", "lt", "ne"),
}
_REDUCTIONS: Final = {"mean", "sum"}
_GRIDS: Final = frozenset({"arange", "linspace", "logspace"})
_SHAPING: Final = ("Expand", "Index", "Reshape", "Select", "Slice", "Unsqueeze", "View")
"""Nodes by which a column is made on purpose."""
_MOST_STEPS: Final = 6
"""Nodes from a column to where it was made."""


class ExpandedLoss(NamedTuple):
    """A loss of tensors that were both expanded."""

    captured: Any
    """The stack of the call that expands them."""
    one: tuple[int, ...]
    other: tuple[int, ...]
    is_compared: bool
    """Whether the one is held against the other, not put together with it in another way."""


class ExpandedTensors:
    """Follows what was expanded by mistake through the calls of a program."""

    def __init__(self) -> None:
        self._expanded: MutableMapping[Tensor, ExpandedLoss] = WeakTensorKeyDictionary()
        self._grids: MutableMapping[Tensor, bool] = WeakTensorKeyDictionary()

    def called(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, captured: Any
    ) -> ExpandedLoss | None:
        """A call has returned; gives what it made a loss of by mistake.

        Args:
            name: of the function.
            args: what it was given.
            kwargs: the same, by name.
            result: what it gave.
            captured: its stack.
        """
        last = _last(name)
        if last in _LOSSES:
            return _expanded_loss(args, kwargs, captured) or self._given_to_loss(args, kwargs)
        if not isinstance(result, Tensor):
            return None
        given = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        if last in _GRIDS:
            self._grids[result] = True
        elif last in _REDUCTIONS:
            is_loss = not result.dim() and result.grad_fn is not None
            return self._expanded.get(given[0]) if is_loss and given and self._expanded else None
        elif last in _NUMBER_BY_NUMBER:
            self._follow(last, given, result, captured)
        return None

    def _follow(self, last: str, given: Sequence[Tensor], result: Tensor, captured: Any) -> None:
        if self._grids and all(each in self._grids for each in given):
            self._grids[result] = True
        found = [self._expanded[each] for each in given if each in self._expanded]
        if found:
            is_met = any(
                each.shape == result.shape and each not in self._expanded for each in given
            )
            if not is_met:
                self._expanded[result] = found[0]
        elif last in _EXPANDING and len(given) == 2 and self._is_outer(*given):
            column, flat = sorted(given, key=lambda each: -each.dim())
            shapes = tuple(column.shape), tuple(flat.shape)
            self._expanded[result] = ExpandedLoss(captured, *shapes, last in {"sub", "rsub"})

    def _is_outer(self, one: Tensor, other: Tensor) -> bool:
        """Note [Expanded by mistake]."""
        column, flat = sorted((one, other), key=lambda each: -each.dim())
        return (
            column.dim() == flat.dim() + 1 == 2
            and tuple(column.shape) == (len(flat), 1)
            and len(flat) > 1
            and not _is_made_to_expand(column)
            and not (
                flat._is_view() and flat._base is (column._base if column._is_view() else column)
            )
            and flat not in self._grids
        )

    def _given_to_loss(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ExpandedLoss | None:
        compared = _compared(args, kwargs)
        found = [self._expanded[each] for each in compared if each in self._expanded]
        if not found or not any(each.requires_grad for each in compared):
            return None
        largest = max(each.numel() for each in compared)
        is_met = any(each.numel() == largest and each not in self._expanded for each in compared)
        return None if is_met else found[0]


def _last(name: str) -> str:
    """``sub`` of ``Tensor.sub``, ``Tensor.__sub__`` and ``torch.subtract``."""
    last = name.rpartition(".")[2].strip("_")
    return _ALSO.get(last, last)


def _compared(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """What a loss is given to compare."""
    tensors = (*args[:2], kwargs.get("input"), kwargs.get("target"))
    return [each for each in tensors if isinstance(each, Tensor)][:2]


def _expanded_loss(
    args: Sequence[Any], kwargs: Mapping[str, Any], captured: Any
) -> ExpandedLoss | None:
    """A loss function of torch that is given shapes of which both must be expanded."""
    shapes = [tuple(each.shape) for each in _compared(args, kwargs)]
    if len(shapes) < 2 or not both_expand(shapes[0], shapes[1]):
        return None
    return ExpandedLoss(captured, shapes[0], shapes[1], is_compared=True)


def _is_made_to_expand(column: Tensor) -> bool:
    if column._is_view():
        base = column._base
        return base is None or base.dim() != 2 or base.shape[1] != 1  # else rows of a column
    node: Any = column.grad_fn
    for _ in range(_MOST_STEPS):
        if node is None:
            return False
        if node.name().startswith(_SHAPING):
            return True
        below = nodes_below(node)
        node = below[0] if len(below) == 1 else None
    return False


def both_expand(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether the two shapes broadcast to one that is larger than either."""
    if one == other:
        return False
    try:
        together: int = math.prod(torch.broadcast_shapes(one, other))
    except RuntimeError:
        return False
    return together > max(math.prod(one), math.prod(other))
