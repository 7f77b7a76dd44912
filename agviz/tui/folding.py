"""Which rows of the graph are drawn as one line: nodes of a module, of a chain, of repeated blocks.

Folds are stretches of rows that are next to each other. Nothing here goes through all rows, but
for :meth:`Folding.fold_all`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.graph.items import common_module
from agviz.words.labels import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agviz.tui.columns import OutlineColumns

_LONGEST_BLOCK: Final = 128
_FEWEST_BLOCKS: Final = 3


class Fold(NamedTuple):
    """Rows that belong together."""

    start: int
    end: int
    """The row behind the last one."""
    title: str
    """The module's path, or what the rows are."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.end - self.start


class Folding:
    """Lines of rows, some of which are folded.

    Args:
        columns: the nodes.
        rows: rows of the columns that are shown; None: all, however many there come to be.
    """

    def __init__(self, columns: OutlineColumns, rows: Sequence[int] | None = None) -> None:
        self._columns = columns
        self._rows = rows
        self._folds: list[Fold] = []
        self._settle([])

    def __len__(self) -> int:
        """Number of rows, folded ones included."""
        return len(self._columns) if self._rows is None else len(self._rows)

    @property
    def lines(self) -> int:
        """Number of lines."""
        return len(self) - (self._hidden[-1] if self._hidden else 0)

    @property
    def folds(self) -> Sequence[Fold]:
        """What is folded, in order."""
        return self._folds

    def node(self, place: int) -> int:
        """The node at a place among the rows."""
        return self._columns.node_at(place if self._rows is None else self._rows[place])

    def row(self, place: int) -> int:
        """The row of the columns at a place among those that are shown."""
        return place if self._rows is None else self._rows[place]

    def place_of(self, node: int) -> int | None:
        """Where a node is among the rows; None: it is not shown."""
        row = self._columns.row_of(node)
        if row is None or self._rows is None:
            return row
        place = bisect_left(self._rows, row)
        return place if place < len(self._rows) and self._rows[place] == row else None

    def at(self, line: int) -> tuple[int, Fold | None]:
        """The place of a line, and the fold that it represents."""
        index = bisect_right(self._lines, line) - 1
        if index < 0:
            return line, None
        fold = self._folds[index]
        if line == self._lines[index]:
            return fold.start, fold
        return line + self._hidden[index], None

    def line_of(self, place: int) -> int:
        """The line on which a place is."""
        index = bisect_right(self._starts, place) - 1
        if index < 0:
            return place
        fold = self._folds[index]
        return self._lines[index] if place < fold.end else place - self._hidden[index]

    def fold(self, fold: Fold) -> None:
        """Fold these rows; what is folded among them is one with them."""
        apart = [f for f in self._folds if f.end <= fold.start or fold.end <= f.start]
        self._settle([*apart, fold])

    def unfold(self, fold: Fold, into: Sequence[Fold] = ()) -> None:
        """Show these rows, but for those that are folded in their place."""
        self._settle([*(f for f in self._folds if f != fold), *into])

    def forget_from(self, place: int) -> None:
        """Unfold what reaches beyond a place."""
        if self._folds and self._folds[-1].end > place:
            self._settle([fold for fold in self._folds if fold.end <= place])

    def fold_all(self) -> None:
        """Fold every module and chain."""
        self._settle([fold for fold in self._groups() if fold.rows > 1])

    def unfold_all(self) -> None:
        """Show every row."""
        self._settle([])

    def levels(self, place: int) -> list[Fold]:
        """The groups around a place, each larger than the one before."""
        path = self._path(place)
        modules = [self._module(place, path[:depth]) for depth in range(len(path), 0, -1)]
        groups = modules or [self._chain(place)]
        found = [*self._repeats(place, groups), *groups]
        found.sort(key=lambda fold: fold.rows)
        levels: list[Fold] = []
        for fold in found:
            inner = levels[-1] if levels else Fold(place, place + 1, "")
            if fold.start <= inner.start and inner.end <= fold.end and fold.rows > inner.rows:
                levels.append(fold)
        return levels

    def inside(self, fold: Fold) -> list[Fold]:
        """The largest groups within a group."""
        found = []
        place = fold.start
        while place < fold.end:
            within = [
                each
                for each in self.levels(place)
                if fold.start <= each.start and each.end <= fold.end and each.rows < fold.rows
            ]
            if within:
                found.append(within[-1])
            place = max(place + 1, within[-1].end if within else 0)
        return found

    def _settle(self, folds: list[Fold]) -> None:
        self._folds = sorted(folds)
        self._starts = [fold.start for fold in self._folds]
        self._hidden = list(accumulate(fold.rows - 1 for fold in self._folds))
        before = [0, *self._hidden]
        self._lines = [start - hidden for start, hidden in zip(self._starts, before, strict=False)]

    def _path(self, place: int) -> tuple[str, ...]:
        return self._columns.path_of(self.node(place))

    def _module(self, place: int, path: tuple[str, ...]) -> Fold:
        """The rows around a place that are in a module."""
        depth = len(path)
        start, end = self._stretch(place, lambda other: self._path(other)[:depth] == path)
        return Fold(start, end, ".".join(path))

    def _chain(self, place: int) -> Fold:
        """The rows around a place of which each feeds only the next."""
        start, end = place, place + 1
        while start > 0 and self._is_chained(start - 1):
            start -= 1
        while end < len(self) and self._is_chained(end - 1):
            end += 1
        return Fold(start, end, f"chain from {self._label(start)}")

    def _is_chained(self, place: int) -> bool:
        """Whether a row and the one below are links of one chain outside of modules."""
        producer, consumer = self.node(place), self.node(place + 1)
        return not self._columns.path_of(consumer) and self._columns.belong(producer, consumer)

    def _repeats(self, place: int, groups: Sequence[Fold]) -> list[Fold]:
        """The blocks of equal nodes around a place, if there are several."""
        for period in range(2, _LONGEST_BLOCK + 1):
            first, last = self._periodic(place, period)
            # A block begins where the largest group does that may be one.
            start = next((g.start for g in reversed(groups) if g.rows <= period), place)
            first += (start - first) % period
            blocks = (last - first) // period
            whole = Fold(first, first + blocks * period, "")
            if blocks >= _FEWEST_BLOCKS and whole.start <= place < whole.end:
                return [whole._replace(title=self._repeat_title(whole, blocks, period))]
        return []

    def _periodic(self, place: int, period: int) -> tuple[int, int]:
        """The stretch around a place in which the names of nodes repeat with a period."""
        size, names, node = len(self), self._columns.name_of, self.node

        def repeats(at: int) -> bool:
            return names(node(at)) == names(node(at + period))

        if place + period < size and repeats(place):
            start = place
        elif place >= period and repeats(place - period):
            start = place - period
        else:
            return place, place
        end = start
        while start > 0 and repeats(start - 1):
            start -= 1
        while end + period < size and repeats(end):
            end += 1
        return start, end + period

    def _repeat_title(self, fold: Fold, blocks: int, period: int) -> str:
        first = self._common_module(range(fold.start, fold.start + period))
        last = self._common_module(range(fold.end - period, fold.end))
        if first and first != last:
            return f"{blocks} \N{MULTIPLICATION SIGN} {_between(first, last)}"
        return f"{blocks} \N{MULTIPLICATION SIGN} {period} nodes from {self._label(fold.start)}"

    def _common_module(self, places: Iterable[int]) -> str:
        return common_module([".".join(self._path(place)) for place in places]) or ""

    def _stretch(self, place: int, is_in: Callable[[int], bool]) -> tuple[int, int]:
        start, end = place, place + 1
        while start > 0 and is_in(start - 1):
            start -= 1
        while end < len(self) and is_in(end):
            end += 1
        return start, end

    def _groups(self) -> Iterator[Fold]:
        """All innermost groups."""
        if self._rows is None:
            for start, end in self._columns.groups():
                yield Fold(start, end, self._group_title(start))
            start = len(self._columns.started)
        else:
            start = 0
        size = len(self)
        while start < size:
            end = start + 1
            while end < size and self._columns.belong(self.node(end - 1), self.node(end)):
                end += 1
            yield Fold(start, end, self._group_title(start))
            start = end

    def _group_title(self, start: int) -> str:
        return ".".join(self._path(start)) or f"chain from {self._label(start)}"

    def _label(self, place: int) -> str:
        facts = self._columns.facts(self.node(place))
        return numbered(facts.order, facts.short_name)


def _between(first: str, last: str) -> str:
    """Two paths as one, as far as they agree: ``layers.{3…0}``."""
    ones, others = first.split("."), last.split(".")
    if len(ones) != len(others):
        return f"{first} … {last}"
    return ".".join(
        one if one == other else f"{{{one}…{other}}}"
        for one, other in zip(ones, others, strict=True)
    )
