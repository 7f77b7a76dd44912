"""Where in a tensor elements are that are not finite, or that are largest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from agviz.measure.health import unseen, unwrapped, why_unknown
from agviz.record.elements.box import Axis, coordinates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from agviz.record.elements.box import Box

_MOST: Final = 1 << 26
"""Elements of a tensor that is gone through."""


class Found(NamedTuple):
    """Some elements of a tensor."""

    total: int
    """How many there are."""
    first: Box
    """Those of the first place, which has each coordinate of an axis with each of the others."""
    all: Box
    """Along each axis, the coordinates of all."""


def nonfinite(tensor: Tensor, *, nan_only: bool = False) -> Found | None:
    """The elements that are not finite; None where they can't be looked at, or where none is.

    Args:
        tensor: of any kind.
        nan_only: infinities do not count.
    """
    with unseen():
        tensor = unwrapped(tensor)
        if not _can_be_looked_at(tensor):
            return None
        return _found(torch.isnan(tensor) if nan_only else ~torch.isfinite(tensor))


def largest(tensor: Tensor) -> tuple[Found, float] | None:
    """The element of the largest magnitude, and it; None where it is not finite, or all are 0."""
    with unseen():
        tensor = unwrapped(tensor)
        if not _can_be_looked_at(tensor) or not tensor.is_floating_point():
            return None
        number = tensor.abs().reshape(-1).argmax()
        value = float(tensor.reshape(-1)[number].item())
        if not value or not math.isfinite(value):
            return None
        mask = torch.zeros(tensor.numel(), dtype=torch.bool, device=tensor.device)
        mask[number] = True
        found = _found(mask.view(tensor.shape))
    return None if found is None else (found, value)


def _can_be_looked_at(tensor: Tensor) -> bool:
    is_plain = not why_unknown(tensor) and tensor.layout is torch.strided
    return is_plain and 0 < tensor.numel() <= _MOST


def _found(mask: Tensor) -> Found | None:
    count = int(torch.count_nonzero(mask))
    if not count:
        return None
    everywhere = found = along_axes(mask)
    begin, first, left = [0] * mask.dim(), mask, count
    while left != math.prod(map(len, found)):  # some coordinates do not come with all others
        axis = next(axis for axis, at in enumerate(found) if len(at) > 1)
        begin[axis] = found[axis][0]
        first = first.narrow(axis, begin[axis], 1)
        found, left = along_axes(first), int(torch.count_nonzero(first))
    here = [[start + each for each in at] for start, at in zip(begin, found, strict=True)]
    return Found(count, _box(mask, here), _box(mask, everywhere))


def along_axes(mask: Tensor) -> list[list[int]]:
    """The coordinates along each axis at which there is something."""
    found = []
    for axis in range(mask.dim()):
        others = [other for other in range(mask.dim()) if other != axis]
        here = mask.any(dim=others) if others else mask
        found.append(here.nonzero().view(-1).tolist())
    return found


def _box(mask: Tensor, found: Sequence[Sequence[int]]) -> Box:
    sizes = zip(mask.shape, found, strict=True)
    return tuple(Axis(size, coordinates(at), axis) for axis, (size, at) in enumerate(sizes))
