"""Columns of integers in one blob: a closed recording holds those of each graph task this way.

A header says of every column how many numbers it has, and in how many bytes each; the numbers
follow, little-endian, in the narrowest width that holds them all. A column whose numbers are all
equal is stored as one of them: its width is 0.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Column: TypeAlias = "array[int] | memoryview[int]"
"""Either has what a column is asked for: a number at a place, slices, a length, iteration."""

_HEADER: Final = struct.Struct("<BI")
_ONE: Final = struct.Struct("<q")
_TYPES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
"""Codes of :mod:`array`, by width in bytes."""


def pack(columns: Iterable[Sequence[int] | Column]) -> bytes:
    """The blob of some columns. Raises OverflowError: a number needs more than 64 bits."""
    headers, contents = [], []
    for column in columns:
        low, high = (min(column), max(column)) if column else (0, 0)
        if low == high:
            headers.append(_HEADER.pack(0, len(column)))
            contents.append(_ONE.pack(low))
        else:
            width = _width(low, high)
            numbers = array(_TYPES[width], column)
            if sys.byteorder == "big":
                numbers.byteswap()
            headers.append(_HEADER.pack(width, len(column)))
            contents.append(numbers.tobytes())
    return b"".join((*headers, *contents))


def unpack(blob: bytes, count: int) -> list[Column]:
    """The columns of a blob that was packed; wide ones are views of it, which copy nothing.

    Args:
        blob: the whole.
        count: number of columns.

    Raises:
        ValueError: it is no such blob.
    """
    place = count * _HEADER.size
    found: list[Column] = []
    view = memoryview(blob)
    for column in range(count):
        if place > len(blob):
            raise ValueError("columns are missing")
        width, length = _HEADER.unpack_from(blob, column * _HEADER.size)
        end = place + (width * length if width else _ONE.size)
        if end > len(blob) or (width and width not in _TYPES) or length > len(blob):
            raise ValueError("a column is of the wrong length")
        found.append(_numbers(view[place:end], width, length))
        place = end
    if place != len(blob):
        raise ValueError("a column is of the wrong length")
    return found


def _numbers(contents: memoryview, width: int, length: int) -> Column:
    if not width:
        (number,) = _ONE.unpack(contents)
        return array(_TYPES[_width(number, number)], [number]) * length
    if width > 1 and sys.byteorder == "little":
        return contents.cast(_TYPES[width])  # type: ignore[call-overload, no-any-return]
    numbers = array(_TYPES[width], contents.tobytes())
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _width(low: int, high: int) -> int:
    bits = max(low.bit_length(), high.bit_length())
    return next((width for width in _TYPES if bits < 8 * width), 8)
