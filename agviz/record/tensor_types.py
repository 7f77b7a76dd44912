"""What measured tensors are like, each once, on its way to the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agviz.measure.values import text_of_shape

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 10_000
"""Remembered in memory; after that the table may hold one twice."""


class TensorTypes:
    """Rows of the table ``tensor_type``."""

    def __init__(self, string: Callable[[str], int]) -> None:
        self._string = string
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._next = 1
        self._new: list[int] = []

    def of(self, tensor_type: tuple[Any, ...]) -> int:
        """The id of a :attr:`agviz.measure.values.Health.tensor_type`."""
        number = self._numbers.get(tensor_type)
        if number is None:
            if len(self._numbers) > _MOST:
                self._numbers.clear()
            number = self._numbers[tensor_type] = self._next
            self._next += 1
            dtype, shape, device, layout, *sizes, unknown = tensor_type
            texts = map(self._string, (dtype, text_of_shape(shape), device, layout))
            self._new += number, *texts, *sizes, self._string(unknown)
        return number

    def taken(self) -> list[int]:
        """The rows that are new since the last call, one after the other."""
        new, self._new = self._new, []
        return new
