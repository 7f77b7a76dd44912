"""Whether gradients come of what an optimizer holds that never steps, and nothing moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.record.steps.sample import chosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_LEAST: Final = 3
"""Times that gradients are cleared: one pass or two may be a trial."""
_MOST_PILED: Final = 16
"""Passes that add to what is there: fewer may be meant to be one step."""


class Unstepped:
    """An optimizer before its first step; holds copies of a few parameters, never themselves."""

    def __init__(self) -> None:
        self._places: tuple[int, ...] = ()
        self._before: list[Tensor] = []
        self._had_grad = False
        self._cleared = 0
        self._piled = 0

    def pass_begun(self, parameters: Sequence[Tensor]) -> None:
        """A backward pass begins."""
        from agviz.measure.health import unseen

        if not self._before:
            self._places = chosen(parameters)
            with unseen():
                self._before = [parameters[place].detach().clone() for place in self._places]
        if self._had_grad:
            is_there = self._has_grad(parameters)
            self._cleared += not is_there
            self._piled += is_there

    def pass_ended(self, parameters: Sequence[Tensor]) -> None:
        """It has ended."""
        self._had_grad = self._has_grad(parameters)

    def is_idle(self, parameters: Sequence[Tensor]) -> bool:
        """Whether gradients came again and again, and no parameter was moved."""
        from agviz.measure.health import unseen

        is_trial = self._cleared < _LEAST and self._piled < _MOST_PILED
        if is_trial or max(self._places) >= len(parameters):
            return False
        now = [parameters[place] for place in self._places]
        with unseen():
            return all(
                one.shape == before.shape and bool((one.detach() == before).all())
                for one, before in zip(now, self._before, strict=True)
            )

    def _has_grad(self, parameters: Sequence[Tensor]) -> bool:
        return any(
            place < len(parameters) and parameters[place].grad is not None for place in self._places
        )
