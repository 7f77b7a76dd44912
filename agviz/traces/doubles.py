"""Doubles: numbers in 8 bytes each, some of which are not known."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.traces.packed import Column

_UNKNOWN_BITS: Final = 0x7FF8000000005EED
_UNKNOWN: Final[float] = struct.unpack("<d", struct.pack("<q", _UNKNOWN_BITS))[0]
"""What is not known is a NaN whose bits no arithmetic gives."""


class Doubles:
    """A fixed count of numbers, each of which may be set, finite or not.

    Args:
        count: of numbers, none of which is known.
    """

    def __init__(self, count: int) -> None:
        self._use(array("d", [_UNKNOWN]) * count)

    def _use(self, floats: array[float] | memoryview[float]) -> None:
        self._floats = floats
        self._bits = memoryview(floats).cast("B").cast("q")

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Doubles:
        """Hold these numbers; None: not known."""
        found = cls(0)
        found._use(array("d", [_UNKNOWN if value is None else value for value in values]))
        return found

    @classmethod
    def of_bits(cls, bits: Column) -> Doubles:
        """Hold the numbers that have these :attr:`bits`."""
        found = cls(0)
        wide = bits if bits.itemsize == 8 else array("q", bits)
        found._use(memoryview(wide).cast("B").cast("d"))
        return found

    @property
    def bits(self) -> Column:
        """The numbers as integers, to be packed."""
        return self._bits

    def __len__(self) -> int:
        return len(self._floats)

    def __getitem__(self, place: int) -> float | None:
        return None if self._bits[place] == _UNKNOWN_BITS else self._floats[place]

    def __setitem__(self, place: int, value: float) -> None:
        self._floats[place] = value

    def __iter__(self) -> Iterator[float | None]:
        return map(self.__getitem__, range(len(self)))

    def finite(self, begin: int, end: int) -> list[float]:
        """The finite numbers among those from one place up to before another."""
        return [value for value in self._floats[begin:end].tolist() if value - value == 0]

    def nonfinite(self) -> list[int]:
        """The places of numbers that are known and not finite."""
        odd = [place for place, value in enumerate(self._floats) if value - value != 0]
        return [place for place in odd if self._bits[place] != _UNKNOWN_BITS]

    def count_unknown(self, begin: int, end: int) -> int:
        """How many of these are not known."""
        return self._bits[begin:end].tolist().count(_UNKNOWN_BITS)

    def at(self, places: Iterable[int]) -> Doubles:
        """The numbers at some places."""
        found = Doubles(0)
        found._use(array("d", map(self._floats.__getitem__, places)))
        return found
