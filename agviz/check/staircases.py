"""The mean slope of a forward that goes up in steps, as rounding does: over many of its steps.

Note [Steps on a line]
Such a forward has no derivative to hold a backward against. But where one element is moved far,
over many steps, and the outputs follow a straight line but for the height of a step, that line has
a slope. Estimators that go straight through have that slope, or hand the gradient on as it is; a
factor beside is neither. Of a forward of few levels, as a sign, or one whose steps follow a curve,
nothing is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from agviz.check.slopes import weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_FAR: Final = (0.25, 1.0, 4.0, 16.0, 64.0)
"""Typical sizes of an argument by which an element is moved to both sides."""
_POINTS: Final = 97
_LEAST_LEVELS: Final = 12
_OFF_THE_LINE: Final = 1.01
"""Heights of a step: so far from the line are points at most."""


class Staircase(NamedTuple):
    """What was seen where one element was moved over many steps."""

    slope: float
    """Of the line that they follow."""
    levels: int
    """How many were met."""


def staircase(
    outputs: Callable[[Sequence[Tensor]], list[Tensor]],
    point: Sequence[Tensor],
    direction: Sequence[Tensor],
    weights: Sequence[Tensor],
) -> Staircase | None:
    """The slope of the weighted sum of ``outputs`` over many steps: Note [Steps on a line].

    None: it does not go up, or down, in many steps of one height along a line.

    Args:
        outputs: the outputs at a point.
        point: the middle.
        direction: of the point's shapes, and of the size of what is typical there.
        weights: one for each element of each output.
    """
    for far in _FAR:
        places = torch.linspace(-far, far, _POINTS, dtype=torch.float64)
        moved = (
            [value + float(place) * each for value, each in zip(point, direction, strict=True)]
            for place in places
        )
        sums = torch.tensor([weighted(outputs(at), weights) for at in moved], dtype=torch.float64)
        found = _on_a_line(places, sums)
        if found is not None:
            return found
    return None


def _on_a_line(places: Tensor, sums: Tensor) -> Staircase | None:
    if not bool(sums.isfinite().all()):
        return None
    jumps = sums.diff()
    height = jumps.abs().max().item()
    if not height:
        return None
    jumps = jumps[jumps.abs() > 1e-6 * height]
    is_monotonic = bool((jumps > 0).all() or (jumps < 0).all())
    if not is_monotonic or len(jumps) + 1 < _LEAST_LEVELS or len(jumps) == len(places) - 1:
        return None
    centred = places - places.mean()
    slope = ((centred * (sums - sums.mean())).sum() / centred.square().sum()).item()
    off = (sums - sums.mean() - slope * centred).abs().max().item()
    return Staircase(slope, len(jumps) + 1) if off <= _OFF_THE_LINE * height else None
