"""Integers of 64 bits as bytes that compress well."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Final, overload

WORD: Final = 8
"""Bytes of an integer."""
FEW: Final = WORD - 1
"""Planes of a column of :func:`few_planes`."""
LARGEST: Final = 2 ** (8 * FEW) - 1
"""Largest integer of such a column."""
_KINDS: Final = 8
_WIDTHS: Final = tuple((array(code).itemsize, code) for code in "BHIq")


def planes(words: array[int]) -> bytes:
    """The number of words, then the first byte of each, the second of each, and so on.

    Most numbers are small, so that most planes are all zeros, which are compressed to nothing.
    """
    data = little_endian(words).tobytes()
    length = len(words).to_bytes(WORD, "little")
    return b"".join([length, *(data[byte::WORD] for byte in range(WORD))])


def from_planes(data: bytes) -> tuple[array[int], bytes]:
    """The words, and what follows them. Raises ValueError where they are cut off."""
    count = int.from_bytes(data[:WORD], "little")
    end = WORD + count * WORD
    if len(data) < end:
        raise ValueError("words are missing")
    mixed = bytearray(count * WORD)
    for byte in range(WORD):
        begin = WORD + byte * count
        plane = data[begin : begin + count]
        if plane.count(0) < count:
            mixed[byte::WORD] = plane
    words = array("q")
    words.frombytes(mixed)
    return little_endian(words), data[end:]


def few_planes(words: array[int], beside: bytes = b"") -> bytes:
    """Which planes are not all zeros, a byte for each of :data:`FEW`, and those planes.

    Args:
        words: from 0 to :data:`LARGEST`, of any width; how many they are is not told.
        beside: a byte for each word that has much to do with it; a plane then tells what goes with
            each such byte below 8, in 8 bytes, and where it differs from that. Empty: nothing has.
    """
    data = little_endian(words).tobytes()
    width = words.itemsize
    nothing = bytes(len(words))
    each = [data[byte::width] if byte < width else nothing for byte in range(FEW)]
    told = [plane.count(0) < len(words) for plane in each]
    found = [bytes(told)]
    for plane, is_told in zip(each, told, strict=True):
        if is_told and beside:
            usual = _usual(plane, beside)
            found += usual, differences(plane, beside.translate(_table(usual)))
        elif is_told:
            found.append(plane)
    return b"".join(found)


class Planes(Sequence[int]):
    """Integers from 0 as they stand in a file, of which most are never asked for.

    Args:
        planes: the first byte of each, the second, and so on.
        size: how many they are.
    """

    def __init__(self, planes: list[bytes], size: int) -> None:
        self.planes = planes
        self._size = size

    @classmethod
    def read(cls, data: memoryview, count: int) -> tuple[Planes, int]:
        """As :func:`from_few_planes`."""
        told = bytes(data[:FEW])
        if len(told) < FEW or len(data) < FEW + count * sum(map(bool, told)):
            raise ValueError("planes are missing")
        end = FEW
        planes = []
        for is_told in told.rstrip(b"\0"):
            planes.append(bytes(data[end : end + count]) if is_told else bytes(count))
            end += count if is_told else 0
        return cls(planes, count), end

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return [self[each] for each in range(self._size)[place]]
        if not -self._size <= place < self._size:
            raise IndexError(place)
        number = 0
        for plane in reversed(self.planes):
            number = number << 8 | plane[place]
        return number


def from_few_planes(data: memoryview, count: int, beside: bytes = b"") -> tuple[array[int], int]:
    """So many words, none below 0, as narrow as they are, and how many bytes of ``data`` they were.

    Raises:
        ValueError: they are cut off.
    """
    told = bytes(data[:FEW])
    if len(told) < FEW:
        raise ValueError("planes are missing")
    end = FEW
    width, code = next(each for each in _WIDTHS if not any(told[each[0] :]))
    mixed = bytearray(count * width)
    for byte, is_told in enumerate(told):
        if is_told:
            usual = bytes(data[end : end + _KINDS]) if beside else b""
            end += len(usual)
            plane = data[end : end + count]
            end += count
            if len(plane) < count:
                raise ValueError("planes are missing")
            mixed[byte::width] = (
                differences(plane, beside.translate(_table(usual))) if beside else plane
            )
    words = array(code)
    words.frombytes(mixed)
    return little_endian(words), end


def _usual(plane: bytes, beside: bytes) -> bytes:
    """What the plane holds somewhere beside each byte."""
    usual = bytearray(_KINDS)
    for byte in range(_KINDS):
        place = beside.find(byte, len(beside) // 2)
        place = beside.find(byte) if place < 0 else place
        usual[byte] = plane[place] if place >= 0 else 0
    return bytes(usual)


def _table(usual: bytes) -> bytes:
    return usual.ljust(256, b"\0")


def differences(some: bytes | memoryview, others: bytes) -> bytes:
    """Each byte of one exclusive or that of the other; so twice, they are the same again."""
    both = int.from_bytes(some, "little") ^ int.from_bytes(others, "little")
    return both.to_bytes(len(others), "little")


def little_endian(words: array[int]) -> array[int]:
    """The words as they stand in a file, or from there."""
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words
