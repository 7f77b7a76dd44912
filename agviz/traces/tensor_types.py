"""What measured tensors are like, each once, on its way to the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agviz_engine.instruments import Health, text_of_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz_engine.instruments import Plain

_NUMBERS: Final = Health._fields.index("nan")
"""The fields of a Health before these say what the tensor is like, as does ``unknown``."""
_MOST: Final = 10_000
"""Remembered in memory; after that the table may hold one twice."""


class TensorTypes:
    """Rows of the table ``tensor_type``."""

    def __init__(self, string: Callable[[str], int]) -> None:
        self._string = string
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._plain: dict[Plain, int] = {}
        """The same for those that the engine knows."""
        self._next = 1
        self._new: list[int] = []

    def of(self, health: Health) -> int:
        """The id of what a tensor that was measured is like."""
        return self._number((*health[:_NUMBERS], health.unknown))

    def of_plain(self, kinds: Sequence[Plain]) -> list[int]:
        """The ids of some whose numbers are known."""
        if len(self._plain) > _MOST:
            self._plain.clear()
        for kind in dict.fromkeys(kinds):
            if kind not in self._plain:
                self._plain[kind] = self._number((*kind.facts, ""))
        return [self._plain[kind] for kind in kinds]

    def taken(self) -> list[int]:
        """The rows that are new since the last call, one after the other."""
        new, self._new = self._new, []
        return new

    def _number(self, facts: tuple[Any, ...]) -> int:
        number = self._numbers.get(facts)
        if number is None:
            if len(self._numbers) > _MOST:
                self._numbers.clear()
            number = self._numbers[facts] = self._next
            self._next += 1
            dtype, shape, device, layout, *sizes, unknown = facts
            texts = map(self._string, (dtype, text_of_shape(shape), device, layout))
            self._new += number, *texts, *sizes, self._string(unknown)
        return number
