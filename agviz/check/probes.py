"""What backward gives, held against the derivative of forward: along random directions, then where.

Note [Away from the points of the run]
A Function may have kinks: a ReLU at 0, a maximum of equal values, the ends of a clamp. There any
number between the two slopes is right. Values of a run lie at such points (zeros that another ReLU
made), values a little beside them do not. So the arguments are moved by about a thousandth first,
each time otherwise, and only what differs there counts.

Note [Down to elements]
Along a random direction the slopes of all elements mix. Where one differs, half of the direction is
tried, then the half that differs more, down to one element. Of an element it can be told whether
forward is flat there, which is what straight-through estimators are made for, or has another slope.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal

import torch
from torch import Tensor

from agviz.check.evaluation import RANDOM, EvaluationError
from agviz.check.slopes import along, slope
from agviz.check.staircases import staircase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.check.evaluation import Evaluation, Point
    from agviz.check.slopes import Slope

_WRONG: Final = 1e-2
"""Share of the slope by which backward may differ, besides what the slope may be off by."""
_ROUGH: Final = 1e-4
"""Below this share, both are the same."""
_TRUST: Final = 10.0
"""Errors of a slope that are allowed for."""
_UNASKED: Final = 1e-3
"""Share of a gradient that backward may give where nothing comes in."""
_SHIFT: Final = 1e-3
_TRIES: Final = 3
"""Points around that of the run."""
_ELEMENTS: Final = 4
"""Elements that are tried at random."""
_SECONDS: Final = 5.0
"""For one call of a Function."""


class SlopeMatch(Enum):
    """How a slope that backward gives and that of forward compare."""

    SAME = auto()
    ROUGH = auto()
    """Different by less than a hundredth."""
    FLAT = auto()
    """Forward does not change at all; backward says it does."""
    WRONG = auto()
    UNCLEAR = auto()
    """The slope of forward is not known well enough."""


@dataclass(frozen=True)
class ElementProbe:
    """One element of an argument."""

    index: tuple[int, ...]
    given: float
    """The derivative as backward has it."""
    true: float
    match: SlopeMatch


@dataclass(frozen=True)
class StepsProbe:
    """One element of an argument by which forward goes up in steps."""

    index: tuple[int, ...]
    given: float
    """The derivative as backward has it."""
    slope: float
    """Of the line that the steps follow."""
    levels: int
    """How many were met."""
    is_handed_on: bool
    """Whether backward gives the gradient that came in for the same element."""


@dataclass
class ArgumentProbe:
    """What was found about the gradient of one argument."""

    place: int
    match: SlopeMatch = SlopeMatch.SAME
    elements: list[ElementProbe] = field(default_factory=list)
    is_none: bool = False
    """Whether backward returned None for it."""
    is_zero: bool = False
    """Whether backward returned zeros for it."""

    def of(self, match: SlopeMatch) -> list[ElementProbe]:
        """The elements that compare so."""
        return [each for each in self.elements if each.match is match]


class Prober:
    """Compares a Function with its backward at points near those of one call.

    With ``in_ones``, every incoming gradient is 1, as it was in the run.
    """

    def __init__(self, evaluation: Evaluation, *, in_ones: bool = False) -> None:
        self._evaluation = evaluation
        self._in_ones = in_ones
        self._generator = torch.Generator().manual_seed(0)
        self._until = time.monotonic() + _SECONDS
        self._points: list[tuple[Point, list[Tensor], list[Tensor | None]]] = []
        """Points, incoming gradients, and what backward gives there."""
        for number in range(_TRIES):
            self._points.append(self._at_a_point(number))
            if number and time.monotonic() > self._until - 0.8 * _SECONDS:
                break

    def argument(self, number: int) -> ArgumentProbe:
        """Compare the gradient of one of the arguments that need one.

        Raises:
            EvaluationError: the Function can't be called again.
        """
        found = ArgumentProbe(self._evaluation.call.needs_grad[number])
        given = [gradients[number] for _, _, gradients in self._points]
        found.is_none = all(each is None for each in given)
        found.is_zero = not found.is_none and not any(
            each is not None and bool(each.count_nonzero()) for each in given
        )
        dense = [self._dense(point, number) for point in range(2)]
        found.match = max(dense, key=lambda match: match.value)
        if {*dense} <= {SlopeMatch.SAME, SlopeMatch.UNCLEAR}:
            return found
        size = self._evaluation.start[number].numel()
        for point in range(len(self._points)):
            chosen = {self._bisected(point, number)}
            chosen |= set(
                torch.randint(size, (_ELEMENTS // 2,), generator=self._generator).tolist()
            )
            for element in sorted(each for each in chosen if each is not None):
                found.elements.append(self._element(point, number, element))
            if time.monotonic() > self._until:
                break
        return found

    def is_linear(self) -> bool:
        """Whether twice the incoming gradient makes twice the gradients."""
        point, weights, gradients = self._points[0]
        double = self._evaluation.gradients(point, [2 * each for each in weights])
        return all(
            one is None or two is None or torch.allclose(2 * one, two, rtol=1e-4, atol=1e-7)
            for one, two in zip(gradients, double, strict=True)
        )

    def from_nothing(self, number: int) -> Literal["all", "part"] | None:
        """How much of its gradient an argument gets where zeros come in; None: what is right.

        That is nothing, or little beside the gradient, as an epsilon gives.
        """
        point, weights, gradients = self._points[0]
        given = gradients[number]
        nothing = self._evaluation.gradients(point, [torch.zeros_like(each) for each in weights])
        unasked = nothing[number]
        if given is None or unasked is None or RANDOM in self._evaluation.backward_ops:
            return None
        if not unasked.norm() > _UNASKED * given.norm():
            return None
        return "all" if torch.equal(unasked, given) else "part"

    def is_right_without(self, operators: frozenset[str], number: int) -> bool:
        """Whether the gradient of an argument is right where backward does without operators."""
        values, weights, _ = self._points[0]
        gradients = self._evaluation.gradients(values, weights, skipped=operators)
        direction = self._random(values[number], None)
        _, true = self._compared(0, number, direction)
        everywhere = [torch.zeros_like(each) for each in values]
        everywhere[number] = direction
        return _match(along(gradients, everywhere), true, 0.0) is SlopeMatch.SAME

    def keeps_state(self) -> bool:
        """Whether another call of forward before backward changes what backward gives."""
        point, weights, gradients = self._points[0]
        other = self._points[1][0]
        then = self._evaluation.gradients(point, weights, then_at=other)
        return not all(
            (one is None) == (two is None)
            and (one is None or two is None or torch.allclose(one, two, equal_nan=True))
            for one, two in zip(gradients, then, strict=True)
        )

    def is_identity(self, number: int) -> bool:
        """Whether forward hands an argument on as it is."""
        start = self._evaluation.start
        return any(
            output.numel() == start[number].numel()
            and torch.equal(output.reshape(-1), start[number].reshape(-1).to(output.dtype))
            for output in self._evaluation.outputs(start)
        )

    def over_steps(self, number: int) -> list[StepsProbe]:
        """Hold what backward gives for elements of an argument against the steps of forward.

        Only where it gives something other than the gradient that comes in.
        """
        found: list[StepsProbe] = []
        size = self._evaluation.start[number].numel()
        for values, weights, gradients in self._points:
            given = gradients[number]
            chosen = torch.randint(size, (_ELEMENTS,), generator=self._generator).tolist()
            for element in dict.fromkeys(chosen):
                if given is None or time.monotonic() > self._until:
                    return found
                flat = given.reshape(-1)[element].item()
                direction = [torch.zeros_like(each) for each in values]
                direction[number].view(-1)[element] = _typical(values[number])
                true = staircase(
                    lambda at: self._evaluation.outputs(list(at)), values, direction, weights
                )
                if flat and true is not None:
                    index = torch.unravel_index(torch.tensor(element), given.shape)
                    place = tuple(int(each) for each in index)
                    slope = true.slope / _typical(values[number])
                    comes = _alike(weights, given, element)
                    found.append(StepsProbe(place, flat, slope, true.levels, flat == comes))
        return found

    def second(self) -> SlopeMatch:
        """Compare what differentiating backward gives with the derivative of backward."""
        point, weights, _ = self._points[0]
        start = [*point, *weights]
        leaves = [each.detach().clone().requires_grad_() for each in start]
        values, incoming = leaves[: len(point)], leaves[len(point) :]
        first = self._evaluation.gradients(values, incoming, create_graph=True)
        known = [each for each in first if each is not None]
        on = [
            torch.randn(each.shape, generator=self._generator, dtype=torch.float64)
            for each in known
        ]
        on = [each.to(known[n].dtype).to(known[n].device) for n, each in enumerate(on)]
        linked = [
            (each, weight) for each, weight in zip(known, on, strict=True) if each.requires_grad
        ]
        given: list[Tensor | None] = [None] * len(leaves)
        if linked:
            given = list(
                torch.autograd.grad(
                    [each for each, _ in linked],
                    leaves,
                    [weight for _, weight in linked],
                    allow_unused=True,
                )
            )
        direction = [self._random(each, None) for each in start]

        def gradients(at: object) -> list[Tensor]:
            moved = list(at)  # type: ignore[call-overload]
            found = self._evaluation.gradients(moved[: len(point)], moved[len(point) :])
            return [each for each in found if each is not None]

        true = slope(gradients, start, direction, on)
        return _match(along(given, direction), true, 0.0)

    # -- points ---------------------------------------------------------------------------------

    def _at_a_point(self, number: int) -> tuple[Point, list[Tensor], list[Tensor | None]]:
        start = self._evaluation.start
        point, outputs = start, None
        for signed in (True, False, None):
            at = start if signed is None else [self._shifted(each, signed=signed) for each in start]
            try:
                outputs = self._evaluation.outputs(at)
            except EvaluationError:
                if signed is None:
                    raise
                continue
            if all(bool(each.isfinite().all()) for each in outputs) or signed is None:
                point = at
                break
        if not outputs:
            raise EvaluationError("it gives back nothing that has a derivative")
        weights = [self._weight(each, number) for each in outputs]
        return point, weights, self._evaluation.gradients(point, weights)

    def _shifted(self, value: Tensor, *, signed: bool) -> Tensor:
        """Note [Away from the points of the run]."""
        noise = self._noise(value)
        if not signed:
            noise = noise.abs()
        finite = torch.where(value.isfinite(), value, 0)
        typical = _typical(finite)
        moved = value + _SHIFT * noise * (0.5 * finite.abs() + 0.5 * typical)
        return torch.where(value.isfinite(), moved, value).detach()

    def _weight(self, output: Tensor, number: int) -> Tensor:
        """An incoming gradient: of a scalar, 1 first."""
        if self._in_ones or output.numel() == 1:
            return torch.full_like(output, 1.0 if self._in_ones or number == 0 else 1.7)
        return self._noise(output)

    def _noise(self, like: Tensor) -> Tensor:
        dtype = torch.complex128 if like.is_complex() else torch.float64
        noise = torch.randn(like.shape, generator=self._generator, dtype=dtype)
        return noise.to(like.device, like.dtype)

    def _random(self, value: Tensor, chosen: Tensor | None) -> Tensor:
        """A direction; only of the elements ``chosen``."""
        size = torch.where(value.isfinite(), value, 0).abs()
        direction = self._noise(value) * (0.5 * size + 0.5 * _typical(size))
        direction = torch.where(value.isfinite(), direction, 0)
        return direction if chosen is None else direction * chosen

    # -- directions -----------------------------------------------------------------------------

    def _compared(self, point: int, number: int, direction: Tensor) -> tuple[float, Slope]:
        """The slope along a direction of one argument, by backward and by forward."""
        values, weights, gradients = self._points[point]
        everywhere = [torch.zeros_like(each) for each in values]
        everywhere[number] = direction
        true = slope(lambda at: self._evaluation.outputs(list(at)), values, everywhere, weights)
        return along(gradients, everywhere), true

    def _dense(self, point: int, number: int) -> SlopeMatch:
        values, _, gradients = self._points[point]
        direction = self._random(values[number], None)
        given, true = self._compared(point, number, direction)
        gradient = gradients[number]
        typical = 0.0
        if gradient is not None:
            products = (gradient.conj() * direction).abs().double()
            typical = products.norm().item()
        return _match(given, true, typical)

    def _bisected(self, point: int, number: int) -> int | None:
        """An element at which both differ: Note [Down to elements]; None: time is up."""
        value = self._points[point][0][number]
        direction = self._random(value, None).reshape(-1)
        order = torch.randperm(direction.numel(), generator=self._generator)
        given, true = self._compared(point, number, direction.reshape(value.shape))
        whole = given - true.value
        while len(order) > 1:
            if time.monotonic() > self._until:
                return None
            half, rest = order[: len(order) // 2], order[len(order) // 2 :]
            part = torch.zeros_like(direction)
            part[half] = direction[half]
            given, true = self._compared(point, number, part.reshape(value.shape))
            off = given - true.value
            if abs(off) >= abs(whole - off):
                order, whole = half, off
            else:
                order, whole = rest, whole - off
        return int(order[0])

    def _element(self, point: int, number: int, element: int) -> ElementProbe:
        values, _, gradients = self._points[point]
        value = values[number]
        flat = torch.where(value.isfinite(), value, 0).reshape(-1).abs()
        length = max(flat[element].item(), 0.1 * _typical(flat))
        direction = torch.zeros_like(value).reshape(-1)
        direction[element] = length
        given, true = self._compared(point, number, direction.reshape(value.shape))
        gradient = gradients[number]
        most = 0.0 if gradient is None else gradient.abs().max().item() * length
        index = tuple(int(each) for each in torch.unravel_index(torch.tensor(element), value.shape))
        return ElementProbe(
            index, given / length, true.value / length, _match(given, true, 1e-3 * most)
        )


def _alike(weights: Sequence[Tensor], like: Tensor, element: int) -> float | None:
    """The gradient that comes in at an element; None: no output, or several, have that shape."""
    fitting = [each for each in weights if each.shape == like.shape]
    return fitting[0].reshape(-1)[element].item() if len(fitting) == 1 else None


def _typical(value: Tensor) -> float:
    """Root of the mean square, or 1 where all is zero."""
    if not value.numel():
        return 1.0
    found = value.abs().double().square().mean().sqrt().item()
    return found if found and math.isfinite(found) else 1.0


def _match(given: float, true: Slope, typical: float) -> SlopeMatch:
    """How they compare.

    Args:
        given: the slope by backward.
        true: that of forward.
        typical: below whose ten-thousandth, a difference says nothing.
    """
    off = abs(given - true.value)
    allowed = _TRUST * true.error
    size = max(abs(given), abs(true.value))
    if not math.isfinite(given) or not math.isfinite(true.error):
        return SlopeMatch.UNCLEAR
    if off <= allowed + _ROUGH * max(size, typical):
        return SlopeMatch.UNCLEAR if allowed > 0.1 * max(size, typical) > 0 else SlopeMatch.SAME
    if abs(true.value) <= max(allowed, 1e-6 * abs(given)):
        return SlopeMatch.FLAT
    return SlopeMatch.WRONG if off > allowed + _WRONG * size else SlopeMatch.ROUGH
