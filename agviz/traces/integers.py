"""Integers of 64 bits as bytes that compress well."""

from __future__ import annotations

import sys
from array import array
from typing import Final

WORD: Final = 8
"""Bytes of an integer."""


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


def little_endian(words: array[int]) -> array[int]:
    """The words as they stand in a file, or from there."""
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words
