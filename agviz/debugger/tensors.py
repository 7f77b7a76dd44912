"""Tensors at a stop: a part of one as text, and a gradient made of another."""

from __future__ import annotations

import math
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import torch

from agviz.errors import AgvizError
from agviz.measure.health import measure, name_of, unseen
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from torch import Tensor

HOWS: Final = ("multiply", "fill", "set")
"""How a gradient is changed: times a number; all elements to a number; those of an index."""
MOST_NUMBERS: Final = 1_000
"""Elements of a text."""
_MOST_IN_A_ROW: Final = 20
_MOST_ITEMS: Final = 16
_ITEM: Final = re.compile(
    r"\s*(?:(\.\.\.)|([+-]?\d{1,15})|([+-]?\d{0,15}):([+-]?\d{0,15})(?::(\d{1,15}))?)\s*"
)

Item = Any
"""A number, a slice, or Ellipsis: what is between the commas of an index."""


class TensorError(AgvizError):
    """What was asked of a tensor can't be done; the message says why in one sentence."""


def read_index(text: str) -> tuple[Item, ...]:
    """An index as it is written between brackets: ``0, 2:5, ...``; empty for all.

    Raises:
        TensorError: it is none.
    """
    text = text.strip().removeprefix("[").removesuffix("]")
    if not text.strip():
        return ()
    parts = text.split(",")
    if len(parts) > _MOST_ITEMS:
        raise TensorError(f"an index has at most {_MOST_ITEMS} parts")
    return tuple(_item(part) for part in parts)


def _item(text: str) -> Item:
    match = _ITEM.fullmatch(text)
    if match is None:
        raise TensorError(f"{text.strip()!r} is no index; write one like 0, 2:5, ...")
    ellipsis, number, begin, end, step = match.groups()
    if ellipsis:
        return Ellipsis
    if number is not None:
        return int(number)
    bounds = [int(bound) if bound and bound not in "+-" else None for bound in (begin, end, step)]
    if bounds[2] == 0:
        raise TensorError("a step can't be 0")
    return slice(*bounds)


def part(tensor: Tensor, index: str) -> Tensor:
    """A view of a part of a tensor.

    Raises:
        TensorError: there is no such part.
    """
    items = read_index(index)
    if not items:
        return tensor
    try:
        return tensor[items]
    except (IndexError, RuntimeError, TypeError, NotImplementedError) as error:
        raise TensorError(f"there is no [{index}] in {described(tensor)}: {error}") from None


def described(tensor: Tensor) -> str:
    """Its shape and dtype, in words."""
    with unseen():
        health = measure(tensor)
    return f"{write_shape(health.shape, '?')} {health.dtype}"


def text_of(tensor: Tensor, index: str = "") -> str:
    """The elements of a part of a tensor; of many, the first and last of each row.

    Raises:
        TensorError: there is no such part, or its elements can't be looked at.
    """
    with unseen():
        try:
            shown = part(tensor, index)
            if shown.layout is not torch.strided:
                shown = shown.to_dense()
            shown = shown.detach().resolve_conj().resolve_neg()
            budget = [MOST_NUMBERS]
            return _rows(shown, "", budget)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise TensorError(f"its elements can't be looked at: {error}") from None


def _rows(tensor: Tensor, indent: str, budget: list[int]) -> str:
    if not tensor.dim():
        budget[0] -= 1
        return _number(tensor.item())
    length = len(tensor)
    half = _MOST_IN_A_ROW // 2
    places = range(length)
    shown = chain(places[:half], places[-half:]) if length > _MOST_IN_A_ROW else iter(places)
    parts: list[str] = []
    before = -1
    for place in shown:
        if budget[0] <= 0:
            parts.append("…")
            break
        if place != before + 1:
            parts.append("…")
        parts.append(_rows(tensor[place], indent + " ", budget))
        before = place
    between = ", " if tensor.dim() == 1 else ",\n" + indent + " "
    return f"[{between.join(parts)}]"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def read_value(value: object) -> float:
    """A number to put into a gradient: a number, or ``nan``, ``inf``, ``-inf``.

    Raises:
        TensorError: it is none.
    """
    if type(value) is not bool and isinstance(value, int | float | str) and len(str(value)) < 40:
        try:
            return float(value)
        except ValueError:
            pass
    raise TensorError(f"{str(value)[:40]!r} is no number")


def edited(gradient: Tensor, how: str, value: float, index: str) -> Tensor:
    """Another gradient of the same kind; the one that is there may be somebody else's too.

    Args:
        gradient: what it is made of.
        how: one of :data:`HOWS`.
        value: the number.
        index: for ``set``: which elements.

    Raises:
        TensorError: it can't be done.
    """
    if not (gradient.is_floating_point() or gradient.is_complex()) and not (
        math.isfinite(value) and value == int(value)
    ):
        raise TensorError(f"a gradient of {name_of(gradient.dtype)} can't hold {value}")
    try:
        if how == "multiply":
            return gradient * value
        if how == "fill":
            return torch.full_like(gradient, value)
        if how == "set":
            made = gradient.clone()
            made[read_index(index) or (...,)] = value
            return made
    except (RuntimeError, NotImplementedError, IndexError, TypeError) as error:
        raise TensorError(f"this gradient can't be changed so: {error}") from None
    raise TensorError(f"{how!r} is no way to change a gradient; there are {', '.join(HOWS)}")
