"""Reading this process's memory where an address may be none.

The experiments that find out how torch lays out its objects follow words that are pointers in the
torch they were written for, and may be anything in another. Reading where they lead would end the
process. The kernel, asked to copy the same bytes into a pipe, refuses (``EFAULT``) instead. That is
slow, so only experiments read this way; what they have found is read in place.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

MOST: Final = 512
"""Words that fit into every pipe."""
_WORD: Final = 8
_BYTES: Final = memoryview((ctypes.c_uint8 * 2**62).from_address(0))
"""All addresses; it may be sliced, but only the kernel may look."""


def words(begin: int, count: int) -> list[int]:
    """As ``MEMORY[begin : begin + count]``, but 0 for each word that can't be read.

    Args:
        begin: an address divided by 8.
        count: of words, at most :data:`MOST`.

    Raises:
        OSError: there can be no pipe.
    """
    found = _copied(begin * _WORD, count * _WORD)
    if found is None and count > 1:
        return [word for i in range(count) for word in words(begin + i, 1)]
    return [0] * count if found is None else list(struct.unpack(f"={count}Q", found))


def _copied(address: int, size: int) -> bytes | None:
    """The bytes there; None: they can't be read, not all of them."""
    reader, writer = os.pipe()
    try:
        written = os.write(writer, _BYTES[address : address + size])
        return os.read(reader, size) if written == size else None
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise
        return None
    finally:
        os.close(reader)
        os.close(writer)
