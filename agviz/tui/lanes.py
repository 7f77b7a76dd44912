"""Lanes: the edges of a graph beside its nodes, one row each, as in ``git log --graph``.

A lane leads downwards from the nodes that give a node gradients to that node; edges to the same
node share one. What is kept of a row is a few integers, so that any row is drawn without the ones
above it.
"""

from __future__ import annotations

import heapq
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST: Final = 31
"""Lanes further to the right are counted, but not drawn."""

_PASSING, _BETWEEN, _CROSSING = "│", "─", "┼"
_ENDS = {True: "╰", False: "╯"}
_BEGINS = {True: "╭", False: "╮"}
_MEETS = {True: "├", False: "┤"}
"""By whether they are at the left of the node."""
MORE: Final = "…"
AWAY: Final = "»"
"""In the last cell: there are more lanes; the node or a lane of its own is among them."""


class Fork(NamedTuple):
    """What the lanes do at a row, or at several rows drawn as one.

    Masks have a bit for each lane, lane 0 the lowest.
    """

    before: int
    """Lanes that come from above."""
    after: int
    """Lanes that go on below."""
    column: int
    """The lane of the node; :data:`MOST` and above: it is not drawn."""
    touched: int
    """Lanes that begin or end at the node or meet it."""
    widest: int
    """Number of lanes below, or above where there are more."""


class Lanes:
    """Grows row by row."""

    def __init__(self) -> None:
        self._lane_of: dict[int, int] = {}
        """By node that is waited for."""
        self._free: list[int] = []
        self._end = 0
        """Lanes from here on were never used."""
        self._mask = 0
        self._before = array("I")
        self._touched = array("I")
        self._column = array("i")
        self._count = array("i")
        self.widest = 0
        """Largest number of lanes so far."""

    def __len__(self) -> int:
        return len(self._column)

    def copy(self) -> Lanes:
        """A twin that shares nothing; it goes on from here."""
        twin = Lanes()
        twin._lane_of, twin._free, twin._end = dict(self._lane_of), self._free[:], self._end
        twin._mask, twin.widest = self._mask, self.widest
        return twin

    def add(self, node: int, consumers: Iterable[int]) -> None:
        """The next row: a node, and those it gives gradients to."""
        self._before.append(self._mask)
        above = len(self._lane_of)
        column = self._lane_of.pop(node, -1)
        if column < 0:
            column = self._take()
        touched, is_taken = 1 << min(column, MOST), False
        for consumer in consumers:
            lane = self._lane_of.get(consumer)
            if lane is None:
                lane = self._take() if is_taken else column
                is_taken = True
                self._lane_of[consumer] = lane
            touched |= 1 << min(lane, MOST)
            if lane < MOST:
                self._mask |= 1 << lane
        if not is_taken:
            heapq.heappush(self._free, column)
            if column < MOST:
                self._mask &= ~(1 << column)
        self._touched.append(touched)
        self._column.append(min(column, MOST))
        self._count.append(max(above, len(self._lane_of)))
        self.widest = max(self.widest, above, len(self._lane_of))

    def at(self, first: int, end: int) -> Fork:
        """What happens from row ``first`` to row ``end - 1``, drawn as one."""
        after = self._before[end] if end < len(self._before) else self._mask
        touched = 0
        for row in range(first, end):
            touched |= self._touched[row]
        count = max(self._count[first], self._count[end - 1])
        return Fork(self._before[first], after, self._column[first], touched, count)

    def _take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._end += 1
        return self._end - 1


def draw(fork: Fork, lanes: int) -> tuple[str, int]:
    """A row of ``2 * lanes`` cells, and the cell of the node, which is left blank.

    Args:
        fork: what happens.
        lanes: how many there is room for.
    """
    touched = fork.touched & (fork.before | fork.after | 1 << MOST)
    own = touched & ((1 << lanes) - 1)
    column = min(fork.column, lanes - 1)
    hidden = touched >> lanes or fork.column >= lanes
    right = lanes if hidden else max(own.bit_length() - 1, column)
    left = min((own & -own).bit_length() - 1, column) if own else column
    cells = []
    for lane in range(lanes):
        bit = 1 << lane
        is_left, is_between = lane < column, left < lane < right
        if lane == column:
            cells.append(" ")
        elif own & bit and (fork.before | fork.after) & bit:
            kinds = _MEETS if fork.before & bit else _BEGINS
            kinds = kinds if fork.after & bit else _ENDS
            cells.append(kinds[is_left])
        elif fork.before & fork.after & bit:
            cells.append(_CROSSING if is_between else _PASSING)
        else:
            cells.append(_BETWEEN if is_between else " ")
        cells.append(_BETWEEN if left <= lane < right else " ")
    if hidden:
        cells[-1] = AWAY
    elif fork.widest > lanes:
        cells[-1] = MORE
    return "".join(cells), 2 * column
