"""Whether gradients are added to those of the last step: nobody had cleared them.

Every write to a gradient raises its version. Where a pass begins and the gradients are as the last
step, or the last pass, had left them, they were not cleared in between; where they were written or
are others, they may have been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_MOST: Final = 8
"""Gradients looked at."""


class _Seen(NamedTuple):
    place: int
    identity: int
    version: int


class KeptGradients:
    """The gradients of one optimizer between two steps."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []
        self._is_untouched = False
        self._has_grown = False

    @property
    def is_kept(self) -> bool:
        """Whether passes have added to gradients that were there at the last step."""
        return self._is_untouched and self._has_grown

    @property
    def is_watching(self) -> bool:
        """Whether a pass can still show something."""
        return self._is_untouched

    def stepped(self, parameters: Sequence[Tensor]) -> None:
        """A step has returned."""
        with_grad = [place for place, one in enumerate(parameters) if one.grad is not None]
        if len(with_grad) > _MOST:
            last = len(with_grad) - 1
            with_grad = [with_grad[number * last // (_MOST - 1)] for number in range(_MOST)]
        self._seen = _looked(parameters, with_grad)
        self._is_untouched, self._has_grown = bool(with_grad), False

    def pass_begun(self, parameters: Sequence[Tensor]) -> None:
        """A backward pass begins."""
        now = _looked(parameters, [each.place for each in self._seen])
        self._is_untouched = now == self._seen

    def pass_ended(self, parameters: Sequence[Tensor]) -> None:
        """It has ended."""
        now = _looked(parameters, [each.place for each in self._seen])
        self._is_untouched = len(now) == len(self._seen)
        self._has_grown |= now != self._seen
        self._seen = now


def _looked(parameters: Sequence[Tensor], places: Sequence[int]) -> list[_Seen]:
    found = []
    for place in places:
        grad = parameters[place].grad if place < len(parameters) else None
        if grad is not None:
            found.append(_Seen(place, id(grad), grad._version))
    return found
