"""A few small parameters of an optimizer, measured around its steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from agviz.measure.values import Health

_MOST: Final = 4
"""Parameters in a sample."""
_MOST_NUMBERS: Final = 16_384
"""Of one; a larger one would be felt."""
_EVERY: Final = ((32, 1), (256, 8), (math.inf, 64))
"""Up to how many steps which one in how many is measured.

A measured one costs 0.5 ms on a machine on which a step of a small MLP takes 3.5 ms.
"""


class Measured(NamedTuple):
    """Euclidean norms of one parameter around a step."""

    name: str
    gradient: float | None
    """Of its gradient when the step was called; None: it had none."""
    norm: float
    """Of itself then."""
    change: float
    """Of what the step changed."""
    net: float | None
    """Of what it had changed since the last measured step was called, where it was written after
    that step had returned; None: it was not, or that is not known."""


class _Last(NamedTuple):
    """What is known of the last step."""

    before: Sequence[Tensor]
    versions: Sequence[int]
    """After it."""


class StepSample:
    """The parameters that are measured of one optimizer; holds copies of them, never themselves."""

    def __init__(self) -> None:
        self._places: tuple[int, ...] = ()
        self._of: tuple[int, ...] | None = None
        self._steps = 0
        self._before: list[Tensor] = []
        self._gradients: list[float | None] = []
        self._norms: list[float] = []
        self._net: list[float | None] = []
        self._last: _Last | None = None

    def forget(self) -> None:
        """Steps follow of which nothing is measured."""
        self._last = None

    def called(self, parameters: Sequence[Tensor], identities: tuple[int, ...]) -> None:
        """The step begins.

        Args:
            parameters: all that the optimizer holds.
            identities: of each; where they are others, the sample is chosen anew.
        """
        self._steps += 1
        self._before = []
        if identities != self._of:
            self._of, self._last = identities, None
            self._places = chosen(parameters)
        last, self._last = self._last, None
        if not self._places:
            return
        every = next(every for until, every in _EVERY if self._steps <= until)
        sample = [parameters[place] for place in self._places]
        self._net = _since(last, sample)
        if self._steps % every == 0:
            self._measure(sample)

    def _measure(self, sample: Sequence[Tensor]) -> None:
        from agviz.measure.health import unseen

        with unseen():
            now = [parameter.detach() for parameter in sample]
            grads = [grad if _is_plain(grad := one.grad) else None for one in sample]
            found = iter(_norms([*now, *(grad for grad in grads if grad is not None)]))
            self._norms = [next(found) for _ in now]
            self._gradients = [None if grad is None else next(found) for grad in grads]
            self._before = [parameter.clone() for parameter in now]

    def stepped(self, parameters: Sequence[Tensor], names: Sequence[str]) -> list[Measured]:
        """The step has returned: what was measured, empty where it is not this one's turn."""
        before, self._before = self._before, []
        if not before or any(place >= len(parameters) for place in self._places):
            return []
        import torch

        from agviz.measure.health import unseen

        sample = [parameters[place] for place in self._places]
        with unseen():
            now = [parameter.detach() for parameter in sample]
            changes = _norms(torch._foreach_sub(now, before))
        self._last = _Last(before, [parameter._version for parameter in sample])
        columns = self._gradients, self._norms, changes, self._net
        named = [names[place] for place in self._places]
        return [Measured(*row) for row in zip(named, *columns, strict=True)]


def _since(last: _Last | None, sample: Sequence[Tensor]) -> list[float | None]:
    """What changed since the step before the last; None: nothing did since the last."""
    if last is None or [one._version for one in sample] == last.versions:
        return [None] * len(sample)
    import torch

    from agviz.measure.health import unseen

    with unseen():
        moved = _norms(torch._foreach_sub([one.detach() for one in sample], list(last.before)))
    written = zip(moved, sample, last.versions, strict=True)
    return [far if one._version != version else None for far, one, version in written]


def chosen(parameters: Sequence[Tensor]) -> tuple[int, ...]:
    """Places of the parameters in the sample, spread evenly over those that are fit for it."""
    fit = [
        place
        for place, parameter in enumerate(parameters)
        if parameter.requires_grad and _is_plain(parameter) and parameter.numel() <= _MOST_NUMBERS
    ]
    if len(fit) <= _MOST:
        return tuple(fit)
    return tuple(fit[number * (len(fit) - 1) // (_MOST - 1)] for number in range(_MOST))


def _is_plain(tensor: Tensor | None) -> bool:
    """Whether it is measured without waiting for a device and without its class having a say."""
    import torch

    return (
        type(tensor) in {torch.Tensor, torch.nn.Parameter}
        and tensor is not None
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_nested
        and tensor.is_floating_point()
        and tensor.numel() > 0
    )


def _norms(tensors: Iterable[Tensor]) -> list[float]:
    """Euclidean norms; NaN or infinity where an element is."""
    from agviz.measure.health import health_of

    return [_norm(health_of(tensor)) for tensor in tensors]


def _norm(health: Health) -> float:
    if health.nan:
        return math.nan
    return math.inf if health.posinf or health.neginf else health.norm or 0.0
