"""Which execution is in which column of a lane: times to cells, without a screen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_ZOOM_LIMIT_NS = 20
"""A column never shows less than this."""

_MOST_COMPARED = 16
"""Of more executions than these in one cell the longest is not looked for."""


@dataclass(frozen=True)
class Window:
    """The stretch of time, in ns, that a lane of ``columns`` cells shows."""

    begin: float
    end: float
    columns: int

    @property
    def ns_per_column(self) -> float:
        """Time that one cell represents."""
        return (self.end - self.begin) / max(1, self.columns)

    def column(self, time_ns: float) -> int:
        """The cell of a moment; outside of 0 to ``columns`` where it is not shown."""
        return int((time_ns - self.begin) // self.ns_per_column)

    def time(self, column: float) -> float:
        """The moment at the left of a cell."""
        return self.begin + column * self.ns_per_column

    def zoomed(self, factor: float, around: float, whole: tuple[int, int]) -> Window:
        """This window ``factor`` times as wide, with the moment ``around`` in its place."""
        smallest = float(_ZOOM_LIMIT_NS * max(1, self.columns))
        length = min(max((self.end - self.begin) * factor, smallest), whole[1] - whole[0])
        share = (around - self.begin) / (self.end - self.begin)
        begin = around - length * share
        return Window(begin, begin + length, self.columns).inside(whole)

    def panned(self, columns: float, whole: tuple[int, int]) -> Window:
        """This window moved by a number of cells, within ``whole``."""
        by = columns * self.ns_per_column
        return Window(self.begin + by, self.end + by, self.columns).inside(whole)

    def inside(self, whole: tuple[int, int]) -> Window:
        """This window moved as little as needed to lie in ``whole``."""
        length = min(self.end - self.begin, whole[1] - whole[0])
        begin = min(max(self.begin, whole[0]), whole[1] - length)
        return Window(begin, begin + length, self.columns)

    def showing(self, time_ns: float, whole: tuple[int, int]) -> Window:
        """This window, moved so that ``time_ns`` is well inside where it was not shown."""
        if self.begin <= time_ns < self.end:
            return self
        middle = (self.begin + self.end) / 2
        by = time_ns - middle
        return Window(self.begin + by, self.end + by, self.columns).inside(whole)


class Lane:
    """The executions of one thread, ready to be laid out.

    Args:
        starts: when each started, ascending.
        ends: when each ended; -1 where it has not.
        notable: places of those that must be seen even where many share a cell, ascending: the
            non-finite ones and the failed.
        end_ns: end of an execution that has none.
    """

    def __init__(
        self, starts: Sequence[int], ends: Sequence[int], notable: Sequence[int], end_ns: int
    ) -> None:
        self._starts = starts
        self._own_ends = ends
        self._end_ns = end_ns
        self._notable = notable
        self._laid_out: tuple[Window, list[int]] | None = None
        self._notable_starts = [starts[place] for place in notable]

    def end(self, place: int) -> int:
        """When an execution ended."""
        end = self._own_ends[place]
        return self._end_ns if end < 0 else end

    def cells(self, window: Window, now_ns: float | None = None) -> list[int]:
        """For every cell of ``window`` the index of the execution it shows, or -1.

        Where several share a cell it is the one under way at ``now_ns``, else the first notable
        one, else the longest.
        """
        if self._laid_out is None or self._laid_out[0] != window:
            self._laid_out = window, self._lay_out(window)
        cells = self._laid_out[1][:]
        if now_ns is not None and 0 <= (column := window.column(now_ns)) < window.columns:
            index = bisect_right(self._starts, now_ns) - 1
            if index >= 0 and self.end(index) >= now_ns:
                cells[column] = index + 1
        return [cell - 1 for cell in cells]

    def _lay_out(self, window: Window) -> list[int]:
        """Places plus one, 0 for none, whatever the playhead."""
        cells = []
        for column in range(window.columns):
            begin, end = window.time(column), window.time(column + 1)
            cells.append(self._notable_in(begin, end) or self._longest_in(begin, end))
        return cells

    def at(self, time_ns: float) -> int | None:
        """The execution that last started before ``time_ns``; the first one before all."""
        return max(0, bisect_right(self._starts, time_ns) - 1) if self._starts else None

    # Both give the index plus one, so that 0 says none.

    def _notable_in(self, begin: float, end: float) -> int:
        first = max(0, bisect_right(self._notable_starts, begin) - 1)
        for index in self._notable[first : first + 2]:
            starts = self._starts[index]
            if starts < end and (self.end(index) > begin or starts >= begin):
                return index + 1
        return 0

    def _longest_in(self, begin: float, end: float) -> int:
        first = max(0, bisect_right(self._starts, begin) - 1)
        beyond = min(bisect_left(self._starts, end), first + _MOST_COMPARED)
        best, longest = 0, -1.0
        for index in range(first, beyond):
            if self.end(index) <= begin and self._starts[index] < begin:
                continue
            overlap = min(self.end(index), end) - max(self._starts[index], begin)
            if overlap > longest:
                best, longest = index + 1, overlap
        return best
