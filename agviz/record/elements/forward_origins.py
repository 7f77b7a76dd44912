"""Which calls of torch functions were the first to have something non-finite, as they are made.

A reader decides the same from the file (:mod:`agviz.analysis.blame`), where it is too late to look
at elements. So here each call is looked at that may be the one: it was given data that is not
finite, made something non-finite of finite tensors, or NaN of infinities. An infinity that the
program wrote down itself, as for a mask, is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from agviz.record.elements.keeper import ElementKeeper
    from agviz.record.forward_ops import ForwardTensor
    from agviz.traces.elements import LocatedElements

_MOST: Final = 10_000
"""Tensors that are remembered."""


class _Wrong(NamedTuple):
    """A tensor that is not finite."""

    has_nan: bool
    was_made: bool
    """Whether a function gave it that was given tensors."""


class ForwardOrigins:
    """Remembers which tensors are not finite.

    Args:
        keeper: looks at their elements.
    """

    def __init__(self, keeper: ElementKeeper) -> None:
        self._keeper = keeper
        self._known: dict[tuple[int, int | None], _Wrong] = {}
        """By number and version."""

    def located(
        self,
        op: int,
        arguments: str,
        inputs: Sequence[ForwardTensor],
        given: Sequence[Tensor],
        outputs: Sequence[ForwardTensor],
        made: Sequence[Tensor],
    ) -> Sequence[LocatedElements]:
        """Where it is not finite what a call was given, or made, and no call before it made.

        Asked where some of it is not.

        Args:
            op: its number.
            arguments: in words.
            inputs: what it was given.
            given: the same, the tensors themselves.
            outputs: what it gave or changed.
            made: the same, the tensors themselves.
        """
        wrong = [number for number, each in enumerate(outputs) if is_wrong(each)]
        before = [self._of_input(each) for each in inputs]
        found: list[LocatedElements | None] = []
        function = made[0].grad_fn if made else None
        for number, state in enumerate(before[: len(given)]):
            if state is not None and not state.was_made:
                tensor = given[number]
                located = self._keeper.of_function(op, number, tensor, function, nan_only=False)
                found.append(located)
        if wrong and self._begins_here(arguments, before, [outputs[number] for number in wrong]):
            nan_only = any(before)
            slot = len(inputs) + wrong[0]
            found.append(
                self._keeper.of_function(op, slot, made[wrong[0]], None, nan_only=nan_only)
            )
        for number in wrong:
            self._remember(outputs[number], was_made=bool(inputs))
        return [located for located in found if located is not None][:1]

    def _of_input(self, tensor: ForwardTensor) -> _Wrong | None:
        known = self._known.get((tensor.tensor, tensor.version))
        if known is None and is_wrong(tensor):
            known = _Wrong(_has_nan(tensor), was_made=False)
            self._remember(tensor, was_made=True)  # for the calls after this one
        return known

    def _remember(self, tensor: ForwardTensor, *, was_made: bool) -> None:
        if len(self._known) > _MOST:
            self._known.clear()
        wrong = _Wrong(_has_nan(tensor), was_made)
        self._known[tensor.tensor, tensor.version] = wrong

    @staticmethod
    def _begins_here(
        arguments: str, before: Sequence[_Wrong | None], wrong: Sequence[ForwardTensor]
    ) -> bool:
        if any(state is not None and state.has_nan for state in before):
            return False
        if any(map(_has_nan, wrong)):
            return True
        return not any(before) and "inf" not in arguments


def is_wrong(tensor: ForwardTensor) -> bool:
    """Whether it was measured, and is not finite."""
    health = tensor.health
    return health is not None and bool(health.nan or health.posinf or health.neginf)


def _has_nan(tensor: ForwardTensor) -> bool:
    return tensor.health is not None and tensor.health.nan > 0
