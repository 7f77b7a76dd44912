"""A few small parameters of an optimizer, measured around its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_MOST: Final = 4
"""Parameters in a sample."""
_MOST_NUMBERS: Final = 16_384
"""Of one; a larger one would be felt."""
_ALL_UNTIL: Final = 32
_EVERY: Final = 8
"""The first so many steps are measured, then one in so many."""


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
        from agviz.measure.health import unseen

        self._steps += 1
        self._before = []
        if identities != self._of:
            self._of, self._last = identities, None
            self._places = chosen(parameters)
        is_due = self._steps <= _ALL_UNTIL or self._steps % _EVERY == 0
        if not self._places or not (is_due or self._last):
            return
        sample = [parameters[place] for place in self._places]
        with unseen():
            now = [parameter.detach() for parameter in sample]
            self._net = self._since(now)
            self._last = None
            if is_due:
                grads = [parameter.grad for parameter in sample]
                found = iter(_norms([grad for grad in grads if _is_plain(grad)]))
                self._gradients = [next(found) if _is_plain(grad) else None for grad in grads]
                self._norms = _norms(now)
                self._before = [parameter.clone() for parameter in now]

    def stepped(self, parameters: Sequence[Tensor], names: Sequence[str]) -> list[Measured]:
        """The step has returned: what was measured, empty where it is not this one's turn."""
        import torch

        from agviz.measure.health import unseen

        before, self._before = self._before, []
        if not before or any(place >= len(parameters) for place in self._places):
            return []
        sample = [parameters[place] for place in self._places]
        with unseen():
            now = [parameter.detach() for parameter in sample]
            changes = _norms(torch._foreach_sub(now, before))
        self._last = _Last(before, [parameter._version for parameter in sample])
        columns = self._gradients, self._norms, changes, self._net
        named = [names[place] for place in self._places]
        return [Measured(*row) for row in zip(named, *columns, strict=True)]

    def _since(self, now: Sequence[Tensor]) -> list[float | None]:
        import torch

        if self._last is None:
            return [None] * len(now)
        before, versions = self._last
        moved = _norms(torch._foreach_sub(list(now), list(before)))
        are_written = [
            tensor._version != version for tensor, version in zip(now, versions, strict=True)
        ]
        return [
            far if is_written else None for far, is_written in zip(moved, are_written, strict=True)
        ]


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


def _norms(tensors: Sequence[Tensor | None]) -> list[float]:
    import torch

    given = [tensor for tensor in tensors if tensor is not None]
    if not given:
        return []
    return torch.stack([norm.double() for norm in torch._foreach_norm(given)]).tolist()
