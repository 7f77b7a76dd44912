"""Calls that run with what they are given, and read it as something else.

Note [Dimensions that change places]
``view`` and ``reshape`` keep the order of the numbers. Of (9, 6, 16) seen as (6, 9, 16), a row of
the result is no row of the one dimension or the other: ``transpose`` was meant. The same of
(2, 6, 16), the last states of two layers, seen as (6, 32). Where the first size is a multiple of
the second, that may as well join neighbours, and is not told; nor is what was transposed right
before, as the heads of an attention over as many positions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from torch import Tensor

from agviz.analysis.below_zero import BELOW, BOUNDED, BoundedLoss
from agviz.analysis.measures import number
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


class SwappedView(NamedTuple):
    """A view whose first two dimensions have changed places, but not its numbers."""

    captured: Any
    """The stack of the call."""
    called: str
    before: tuple[int, ...]
    after: tuple[int, ...]


def misread(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, captured: Any
) -> MisreadInput | SwappedView | None:
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
        shapes = tuple(given.shape), tuple(result.shape)
        is_told = is_swapped(*shapes) and not _is_transposed(given.grad_fn)
        return SwappedView(captured, last, *shapes) if is_told else None
    return None


def _name(node: Any) -> str:
    return str(node.name())


def _below(node: Any) -> Any:
    return node.next_functions[0][0] if node.next_functions else None


def _is_transposed(node: Any) -> bool:
    """Whether a node is of a transposition, or of a copy of one."""
    if node is not None and node.name().startswith("Clone"):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(("Permute", "Transpose"))


def is_swapped(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether the first two sizes have changed places: Note [Dimensions that change places]."""
    if len(before) < 3 or min(before[0], before[1]) < 2 or before[0] == before[1]:
        return False
    first, second, *rest = before
    if after == (second, first, *rest):
        return True
    return first % second != 0 and after == (second, first * math.prod(rest))
