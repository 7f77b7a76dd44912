"""Doubles: numbers in 8 bytes each, some of which are not known."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.traces.packed import Column

_UNKNOWN_BITS: Final = 0x7FF8000000005EED
_UNKNOWN_BYTES: Final = struct.pack("<q", _UNKNOWN_BITS)
_UNKNOWN: Final[float] = struct.unpack("<d", _UNKNOWN_BYTES)[0]
"""What is not known is a NaN whose bits no arithmetic gives."""


class Doubles:
    """Numbers, finite or not.

    Args:
        count: of numbers, none of which is known.
    """

    def __init__(self, count: int) -> None:
        self._floats: array[float] | memoryview[float] = array("d", [_UNKNOWN]) * count

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Doubles:
        """Hold these numbers; None: not known."""
        found = cls(0)
        found._floats = array("d", [_UNKNOWN if value is None else value for value in values])
        return found

    @classmethod
    def of_bits(cls, bits: Column) -> Doubles:
        """Hold the numbers that have these :attr:`bits`."""
        found = cls(0)
        wide = bits if bits.itemsize == 8 else array("q", bits)
        found._floats = memoryview(wide).cast("B").cast("d")
        return found

    @property
    def bits(self) -> Column:
        """The numbers as integers, to be packed."""
        return memoryview(self._floats).cast("B").cast("q")

    def __len__(self) -> int:
        return len(self._floats)

    def __getitem__(self, place: int) -> float | None:
        value = self._floats[place]
        return None if value != value and _is_unknown(value) else value  # noqa: PLR0124 - NaN

    def __setitem__(self, place: int, value: float) -> None:
        self._floats[place] = value

    def __iter__(self) -> Iterator[float | None]:
        values: list[float | None] = [*self._floats]
        for place in self.unknown():
            values[place] = None
        return iter(values)

    def finite(self, begin: int, end: int) -> list[float]:
        """The finite numbers among those from one place up to before another."""
        values = [*self._floats[begin:end]]
        total = sum(values)
        return values if total - total == 0 else [value for value in values if value - value == 0]

    def unknown(self) -> list[int]:
        """The places of those that are not known."""
        bits = self.bits
        return [place for place in self._odd() if bits[place] == _UNKNOWN_BITS]

    def nonfinite(self) -> list[int]:
        """The places of those that are known and not finite."""
        bits = self.bits
        return [place for place in self._odd() if bits[place] != _UNKNOWN_BITS]

    def _odd(self) -> list[int]:
        return [place for place, value in enumerate(self._floats) if value - value != 0]

    def largest_first(self) -> list[int]:
        """All places: what is not finite comes first, then the largest; what is not known last."""
        values, first, last = self._floats.tolist(), self.nonfinite(), self.unknown()
        odd = {*first, *last}
        finite = [place for place in range(len(values)) if place not in odd]
        return [*first, *sorted(finite, key=values.__getitem__, reverse=True), *last]

    def find(self, value: float) -> int | None:
        """The place of the first number that equals this one; None: none does."""
        try:
            return [*self._floats].index(value)
        except ValueError:
            return None

    def count_unknown(self, begin: int, end: int) -> int:
        """How many of these are not known."""
        return self.bits[begin:end].tolist().count(_UNKNOWN_BITS)

    def at(self, places: Iterable[int]) -> Doubles:
        """The numbers at some places."""
        found = Doubles(0)
        found._floats = array("d", map(self._floats.__getitem__, places))
        return found

    def append(self, value: float | None) -> None:
        """Add one behind the others, where they are no view of bits."""
        cast("array[float]", self._floats).append(_UNKNOWN if value is None else value)

    def reverse(self) -> None:
        """Turn their order round, where they are no view of bits."""
        cast("array[float]", self._floats).reverse()


def _is_unknown(value: float) -> bool:
    return struct.pack("<d", value) == _UNKNOWN_BYTES
