"""Of which kind something of the program is, without asking it.

``isinstance`` reads ``__class__`` of what is of another type: a lazy proxy loads what it
represents then, or raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing import TypeGuard

T = TypeVar("T")


def is_a(thing: object, *kinds: type[T]) -> TypeGuard[T]:
    """Whether the type of ``thing`` is one of ``kinds``, or derived from it."""
    return issubclass(type(thing), kinds)
