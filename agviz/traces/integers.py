"""Integers of 64 bits as bytes that compress well."""

from __future__ import annotations

import sys
from array import array
from typing import Final

WORD: Final = 8
"""Bytes of an integer."""
FEW: Final = WORD - 1
"""Planes of a column of :func:`few_planes`."""
LARGEST: Final = 2 ** (8 * FEW) - 1
"""Largest integer of such a column."""


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
        mixed[byte::WORD] = data[begin : begin + count]
    words = array("q")
    words.frombytes(mixed)
    return little_endian(words), data[end:]


def few_planes(words: array[int]) -> bytes:
    """Which planes are not all zeros, a byte for each of :data:`FEW`, and those planes.

    The words are from 0 to :data:`LARGEST`. Nobody is told how many they are.
    """
    data = little_endian(words).tobytes()
    each = [data[byte::WORD] for byte in range(FEW)]
    told = [plane.count(0) < len(words) for plane in each]
    return bytes(told) + b"".join(
        plane for plane, is_told in zip(each, told, strict=True) if is_told
    )


def from_few_planes(data: memoryview, count: int) -> tuple[array[int], int]:
    """So many words, none below 0, and how many bytes of ``data`` they were.

    Raises:
        ValueError: they are cut off.
    """
    told = bytes(data[:FEW])
    if len(told) < FEW:
        raise ValueError("planes are missing")
    end = FEW
    mixed = bytearray(count * WORD)
    for byte, is_told in enumerate(told):
        if is_told:
            mixed[byte::WORD] = data[end : end + count]
            end += count
    words = array("q")
    words.frombytes(mixed)
    return little_endian(words), end


def little_endian(words: array[int]) -> array[int]:
    """The words as they stand in a file, or from there."""
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words
