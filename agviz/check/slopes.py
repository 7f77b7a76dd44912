"""The derivative of a Function along a direction: numerically, with an estimate of its error.

Note [Error model]
The central difference over a step h has two errors: that of the step, which shrinks with h, and
that of rounding, which grows as 1/h. So several steps are tried. The difference between two
neighbours stands for the first error; the resolution of the output's dtype times what is added up,
divided by h, for the second. The pair of steps with the smallest sum of both is believed, and that
sum is its error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STEPS: Final = (1e-3, 1e-4, 1e-5, 1e-6)
_LARGE_STEPS: Final = (0.3, 0.1, 0.03, 0.01, 0.003)
"""For outputs of less than double precision."""
_EXACT: Final = 1e-5
"""Share of a derivative that may be its error where no smaller step is tried."""


class Slope(NamedTuple):
    """A derivative along a direction."""

    value: float
    error: float
    """What it may be off by."""


def slope(
    outputs: Callable[[Sequence[Tensor]], list[Tensor]],
    point: Sequence[Tensor],
    direction: Sequence[Tensor],
    weights: Sequence[Tensor],
) -> Slope:
    """The derivative of the weighted sum of ``outputs``; its error is infinite where there is none.

    Args:
        outputs: the outputs at a point.
        point: where.
        direction: the direction, of the point's shapes; its length counts.
        weights: one for each element of each output.
    """
    resolution = max(
        (torch.finfo(each.dtype).eps for each in weights), default=torch.finfo(torch.float64).eps
    )
    steps = _STEPS if resolution < 1e-12 else _LARGE_STEPS
    best, last = Slope(0.0, math.inf), None
    for step in steps:
        ahead = _total(outputs(_moved(point, direction, step)), weights)
        behind = _total(outputs(_moved(point, direction, -step)), weights)
        value = (ahead.total - behind.total) / (2 * step)
        rounding = resolution * max(ahead.size, behind.size) / step
        if math.isfinite(value):
            if last is not None:
                error = abs(value - last) + rounding
                if error < best.error:
                    best = Slope(value, error)
                if error <= _EXACT * abs(value):
                    break
            last = value
    return best


def along(gradients: Sequence[Tensor | None], direction: Sequence[Tensor]) -> float:
    """What ``gradients`` say of the derivative along ``direction``."""
    return sum(
        _product(gradient, each).total
        for gradient, each in zip(gradients, direction, strict=True)
        if gradient is not None
    )


def weighted(outputs: Sequence[Tensor], weights: Sequence[Tensor]) -> float:
    """The sum of ``outputs``, each element times its weight."""
    return _total(outputs, weights).total


class _Sum(NamedTuple):
    total: float
    size: float
    """Root of the sum of squares of what was added up."""


def _total(outputs: Sequence[Tensor], weights: Sequence[Tensor]) -> _Sum:
    sums = [_product(weight, each) for weight, each in zip(weights, outputs, strict=True)]
    return _Sum(sum(each.total for each in sums), math.hypot(*(each.size for each in sums)))


def _product(one: Tensor, other: Tensor) -> _Sum:
    """Torch's convention for complex gradients: the real part of the conjugate times the other."""
    if one.is_complex() or other.is_complex():
        products = (one.to(torch.complex128).conj() * other.to(torch.complex128)).real
    else:
        products = one.double() * other.double()
    return _Sum(products.sum().item(), products.norm().item())


def _moved(point: Sequence[Tensor], direction: Sequence[Tensor], step: float) -> list[Tensor]:
    return [value + step * each for value, each in zip(point, direction, strict=True)]
