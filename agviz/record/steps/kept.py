"""Whether gradients are added to those of the last step: nobody had cleared them.

Every write to a gradient raises its version. Where a pass begins and the gradients are as the last
step, or the last pass, had left them, they were not cleared in between; where they were written or
are others, they may have been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

_MOST: Final = 8
"""Gradients looked at."""


_Seen: TypeAlias = "tuple[int, int, int]"
"""Place of the parameter, identity of its gradient, version of that."""


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
        seen = _looked(enumerate(parameters))
        if len(seen) > _MOST:
            last = len(seen) - 1
            seen = [seen[number * last // (_MOST - 1)] for number in range(_MOST)]
        self._seen = seen
        self._is_untouched, self._has_grown = bool(seen), False

    def pass_begun(self, parameters: Sequence[Tensor]) -> None:
        """A backward pass begins."""
        # The first that is another settles it: most programs have cleared all of them.
        self._is_untouched = all(
            place < len(parameters)
            and (grad := parameters[place].grad) is not None
            and (id(grad), grad._version) == (identity, version)
            for place, identity, version in self._seen
        )

    def pass_ended(self, parameters: Sequence[Tensor]) -> None:
        """It has ended."""
        places = (place for place, _, _ in self._seen if place < len(parameters))
        now = _looked((place, parameters[place]) for place in places)
        self._is_untouched = len(now) == len(self._seen)
        self._has_grown |= now != self._seen
        self._seen = now


def _looked(parameters: Iterable[tuple[int, Tensor]]) -> list[_Seen]:
    return [
        (place, id(grad), grad._version)
        for place, parameter in parameters
        if (grad := parameter.grad) is not None
    ]
