"""Shapes as torch, the screen and the tables of a trace write them: ``[2, 3]``."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_DIMENSIONS: Final = 64
_LARGEST: Final = 2**63 - 1


def write_shape(sizes: Iterable[int] | None, unknown: str = "") -> str:
    """``[32, 64]``, ``[]`` for a scalar; ``unknown`` where the sizes are not known."""
    return unknown if sizes is None else f"[{', '.join(map(str, sizes))}]"


@lru_cache(maxsize=4096)
def read_shape(text: str) -> tuple[int, ...] | None:
    """The sizes; None for an empty text: they are not known.

    Raises:
        ValueError, RecursionError: it is no shape.
    """
    sizes = _sizes(text)
    if sizes is None:
        return None
    known = [size for size in sizes if type(size) is int and 0 <= size <= _LARGEST]
    if len(known) != len(sizes):
        raise ValueError(text)
    return tuple(known)


def read_ragged_shape(text: str) -> tuple[int | None, ...] | None:
    """The same, where ``null`` may represent the ragged dimension of a jagged tensor."""
    sizes = _sizes(text)
    if sizes is None:
        return None
    if sizes.count(None) > 1:
        raise ValueError(text)
    known = read_shape(json.dumps([size for size in sizes if size is not None])) or ()
    found: list[int | None] = list(known)
    if None in sizes:
        found.insert(sizes.index(None), None)
    return tuple(found)


def _sizes(text: str) -> list[object] | None:
    if not text:
        return None
    sizes = json.loads(text)
    if type(sizes) is not list or len(sizes) > _MOST_DIMENSIONS:
        raise ValueError(text)
    return sizes
