"""A few of a tensor's elements, and how many there are of which size: what a viewer draws of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from agviz.debugger.messages import Sampled
from agviz.measure.health import unwrapped

if TYPE_CHECKING:
    from torch import Tensor

    from agviz.measure.values import Health

BINS: Final = 32
FIRST: Final = 64
"""Elements that are sent themselves."""
MOST_ELEMENTS: Final = 1 << 18
"""Of more than these no histogram is made: a step is not to wait for it."""


def sample(tensor: Tensor, health: Health) -> Sampled | None:
    """A sample of a tensor; call it within :func:`agviz.measure.health.unseen`.

    Args:
        tensor: any.
        health: what was measured of it.

    Returns:
        ``first``: texts of its first elements in order of their indices; ``counts``: of its finite
        numbers from the smallest to the largest in :data:`BINS` steps of equal width, empty where
        there are none or too many elements. None: its elements can't be looked at one by one.
    """
    try:
        plain = unwrapped(tensor)
        if plain.layout is not torch.strided:
            return None
        plain = plain.resolve_conj().resolve_neg()
        return Sampled(tuple(_first(plain)), tuple(_counts(plain, health)))
    except Exception:  # noqa: BLE001 - an exotic tensor: that it can't be drawn is no error
        return None


def _first(tensor: Tensor) -> list[str]:
    if not tensor.dim():
        return [_text(tensor.item())]
    places = torch.arange(min(tensor.numel(), FIRST), device=tensor.device)
    chosen = tensor[torch.unravel_index(places, tensor.shape)]
    return [_text(element) for element in chosen.tolist()]


def _text(element: object) -> str:
    return str(element) if isinstance(element, bool | int) else f"{element:.4g}"


def _counts(tensor: Tensor, health: Health) -> list[int]:
    low, high = health.min, health.max
    if low is None or high is None or tensor.numel() > MOST_ELEMENTS:
        return []
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    # Halved, the largest numbers have a difference that is a number.
    half = numbers.reshape(-1).to("cpu", torch.float64) / 2
    half = half[half.isfinite()]
    begin, end = low / 2, high / 2
    if not begin < end or not math.isfinite(end - begin):
        return [half.numel()]
    counts = torch.histc(half, BINS, begin, end)
    return [int(count) for count in counts.tolist()]
