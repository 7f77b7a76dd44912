"""Sets of elements of a tensor, as a set of coordinates along each axis.

Note [What a box says]
A walk begins at some elements of a tensor, its start, and goes on to the tensors that it was made
of. The box of such a tensor says at which coordinates the elements of the start are to be found
there: all of an axis where it was reduced or was wide from the start, a few where an index leads to
a few, and nothing (None) where elements of the whole axis are mixed, as a matrix product does. So a
token stays the same token behind an attention layer, though what is in it comes from all of them.

Several ways may lead to one tensor. Coordinates that the start has (``origin``) go before an axis
that is wide for another reason; where neither is the start's, nothing is left of the narrower.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Coordinates: TypeAlias = "tuple[int, ...] | range"
"""Ascending."""
MOST: Final = 4_096
"""Coordinates, or elements, that are gone through one by one."""


class Axis(NamedTuple):
    """Some coordinates along an axis."""

    size: int
    at: Coordinates | None
    """None: nothing is known."""
    origin: int | None = None
    """The axis of the start that this one is."""
    parts: tuple[Axis, ...] = ()
    """The axes that were flattened into it."""

    @property
    def is_narrow(self) -> bool:
        """Whether some coordinates are known, and not all."""
        return self.at is not None and (self.size == 1 or len(self.at) < self.size)

    def moved(self, size: int, at: Iterable[int]) -> Axis:
        """The same axis of another tensor, with other coordinates."""
        return Axis(size, coordinates(at), self.origin)


Box: TypeAlias = "tuple[Axis, ...]"


def coordinates(of: Iterable[int]) -> Coordinates | None:
    """In order, each once; None: too many."""
    if isinstance(of, range):
        return of if of.step == 1 else coordinates(tuple(of))
    found = sorted(set(of))
    if len(found) > MOST:
        return None
    if found and found[-1] - found[0] == len(found) - 1:
        return range(found[0], found[-1] + 1)
    return tuple(found)


def whole(size: int) -> Axis:
    """All of an axis that the start does not have."""
    return Axis(size, range(size))


def mixed(size: int) -> Axis:
    """An axis whose elements all come together."""
    return Axis(size, range(1) if size == 1 else None)


def at(size: int, of: Iterable[int]) -> Axis:
    """Some coordinates that the start does not have."""
    return Axis(size, coordinates(of))


def is_empty(box: Box) -> bool:
    """Whether there is no element."""
    return any(axis.at is not None and not axis.at for axis in box)


def says_something(box: Box) -> bool:
    """Whether it leaves out elements."""
    return any(axis.is_narrow and axis.size > 1 for axis in box)


def united(one: Box, other: Box) -> Box:
    """What two ways to one tensor say; see Note [What a box says]."""
    if len(one) != len(other):
        return tuple(mixed(axis.size) for axis in one)
    return tuple(map(_united, one, other))


def _united(one: Axis, other: Axis) -> Axis:
    if one.at is None or other.at is None:
        return other if one.at is None else one
    if one.is_narrow != other.is_narrow:
        narrow, wide = (one, other) if one.is_narrow else (other, one)
        is_of_start = narrow.origin is not None and narrow.origin != wide.origin
        return narrow if is_of_start else wide
    parts: tuple[Axis, ...] = ()
    if [part.size for part in one.parts] == [part.size for part in other.parts]:
        parts = united(one.parts, other.parts)
    origin = one.origin if one.origin == other.origin else None
    found = one.at if one.at == other.at else coordinates((*one.at, *other.at))
    return Axis(one.size, found, origin, parts)


def broadcast(box: Box, sizes: Sequence[int]) -> Box:
    """The elements of an operand of an elementwise function that are broadcast to these."""
    own = box[len(box) - len(sizes) :] if sizes else ()
    return tuple(
        axis if size == axis.size else Axis(size, range(size))
        for axis, size in zip(own, sizes, strict=True)
    )


def reshaped(box: Box, sizes: Sequence[int]) -> Box | None:
    """The same elements in another shape; None: it has not as many."""
    if math.prod(axis.size for axis in box) != math.prod(sizes) or 0 in sizes:
        return None
    axes = [axis for axis in box if axis.size > 1]
    wanted = [size for size in sizes if size > 1]
    found: list[Axis] = []
    i = j = 0
    while i < len(axes):
        first, last = i, j
        here, there = axes[i].size, wanted[j]
        i, j = i + 1, j + 1
        while here != there:
            if here < there:
                here, i = here * axes[i].size, i + 1
            else:
                there, j = there * wanted[j], j + 1
        found += _factored(tuple(axes[first:i]), wanted[last:j])
    others = iter(found)
    return tuple(next(others) if size > 1 else mixed(1) for size in sizes)


def _factored(axes: Box, sizes: Sequence[int]) -> Box:
    for known in (axes, axes[0].parts):
        if [axis.size for axis in known] == list(sizes):
            return known
    flat = _flat(axes)
    if len(sizes) == 1:
        return (Axis(sizes[0], flat, None, axes),)
    if flat is not None and len(flat) == math.prod(sizes):
        return tuple(map(whole, sizes))
    if flat is None or len(flat) > MOST:
        return tuple(map(mixed, sizes))
    split = zip(*(unravelled(number, sizes) for number in flat), strict=True)
    return tuple(itertools.starmap(at, zip(sizes, split, strict=True)))


def _flat(axes: Box) -> Coordinates | None:
    """The coordinates of an axis into which these are flattened."""
    if any(axis.at is None for axis in axes):
        known = [axis for axis in axes if axis.at is not None]
        if not any(axis.is_narrow for axis in known):
            return None
    sets = [range(axis.size) if axis.at is None else axis.at for axis in axes]
    if all(len(each) == axis.size for each, axis in zip(sets, axes, strict=True)):
        return range(math.prod(axis.size for axis in axes))
    if math.prod(map(len, sets)) > MOST:
        return None
    sizes = [axis.size for axis in axes]
    return coordinates(ravelled(place, sizes) for place in itertools.product(*sets))


def ravelled(place: Iterable[int], sizes: Sequence[int]) -> int:
    """Number of an element in order of its coordinates."""
    number = 0
    for index, size in zip(place, sizes, strict=True):
        number = number * size + index
    return number


def unravelled(number: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Coordinates of the element with this number."""
    found = []
    for size in reversed(sizes):
        number, index = divmod(number, size)
        found.append(index)
    return tuple(reversed(found))


def elements(box: Box) -> list[tuple[int, ...]] | None:
    """All elements one by one, where a coordinate that is not known may be any; None: too many."""
    sets = [range(axis.size) if axis.at is None else axis.at for axis in box]
    if math.prod(map(len, sets)) > MOST:
        return None
    return list(itertools.product(*sets))
