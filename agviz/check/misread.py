"""Calls that run with what they are given, and read it as something else.

Losses that are given probabilities (Note [What a loss is given]), and views that move a dimension
but no data (Note [Dimensions that only sizes moved]).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from torch import Tensor

from agviz.analysis.below_zero import BELOW, BOUNDED, BoundedLoss
from agviz.analysis.measures import number
from agviz.analysis.mixed_axes import is_meant, moved
from agviz.analysis.normalised_twice import LOSSES, Loss, probabilities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_C = cast("Any", torch._C)
_LOSSES: Final = {loss.name: loss for loss in LOSSES}
_BOUNDED: Final = {loss.name: loss for loss in BOUNDED.values()}
_READS_ANEW: Final = frozenset({"reshape", "reshape_as", "view", "view_as"})


class MisreadInput(NamedTuple):
    """A loss that was given probabilities (Note [What a loss is given]), or is below zero."""

    captured: Any
    """The stack of its call."""
    loss: Loss | BoundedLoss
    given_by: str
    """The function that gave the probabilities, or the value of the loss."""


class MixingView(NamedTuple):
    """A view that moves a dimension, but no data: Note [Dimensions that only sizes moved]."""

    captured: Any
    """The stack of the call."""
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int
    """Of the dimension."""


def misread(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, captured: Any
) -> MisreadInput | MixingView | None:
    """What a call reads otherwise than it is meant; None: nothing of the kind.

    Args:
        name: of the function.
        args: what it was given.
        kwargs: the same, by name.
        result: what it gave.
        captured: its stack.
    """
    last = name.rpartition(".")[2]
    given = args[0] if args else kwargs.get("input")
    if not isinstance(given, Tensor) or not given.requires_grad:
        return None
    if last in _LOSSES:
        found = probabilities(given.grad_fn, _name, _below)
        if found is not None:
            return MisreadInput(captured, _LOSSES[last], found[1])
    is_number = isinstance(result, Tensor) and result.numel() == 1
    if last in _BOUNDED and is_number and not _C._are_functorch_transforms_active():
        value = result.item()
        return MisreadInput(captured, _BOUNDED[last], number(value)) if value < BELOW else None
    if last in _READS_ANEW and isinstance(result, Tensor):
        before, after = tuple(given.shape), tuple(result.shape)
        size = moved(before, after)
        if size is None or is_meant(_names(given.grad_fn), before, after):
            return None
        return MixingView(captured, before, after, size)
    return None


def _name(node: Any) -> str:
    return str(node.name())


def _below(node: Any) -> Any:
    return node.next_functions[0][0] if node.next_functions else None


def _names(node: Any) -> list[str]:
    """The names of a node and of what its first output leads to."""
    return [_name(each) for each in (node, _below(node) if node else None) if each is not None]
