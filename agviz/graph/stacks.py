"""Stacks: nodes in a row, written under each other in one box.

A backward pass is mostly long rows of nodes with short side branches that end at a parameter.
Written as lines of a box instead of one box each, a picture of the same nodes needs a third of
the height, and Graphviz a tenth of the time. Nothing is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agviz.graph.items import ancestry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.graph.items import EdgeBundle, Item

LONGEST_STACK = 16
"""Lines of the row itself in one box."""
LARGEST_BRANCH = 4
"""Lines of a side branch that is written into its producer's box."""


@dataclass(frozen=True, slots=True)
class Line:
    """One item in a box."""

    item: int
    """Position of the item."""
    indent: int
    """0 for the row itself; side branches are below the line that feeds them."""
    link: EdgeBundle | None
    """The link from the line above it that feeds it; None for the first line."""


@dataclass(frozen=True, slots=True)
class Box:
    """Lines drawn as one node."""

    lines: tuple[Line, ...]
    module: str | None
    """The module it is drawn in."""


def stack(
    items: Sequence[Item],
    links: Sequence[EdgeBundle],
    *,
    longest: int = LONGEST_STACK,
    framed: frozenset[str] = frozenset(),
) -> list[Box]:
    """Write the items into boxes, in their order. Every item is in exactly one box.

    A module that would be a single box, or several that have nothing to do with each other (an
    activation that is called in three places), shares boxes with its neighbours in its parent.

    Args:
        items: producers before consumers.
        links: those between them.
        longest: at most this many items of one row in a box.
        framed: modules that never share a box with their parent.
    """
    modules = [item.module for item in items]
    box_of = [0] * len(items)
    for place, box in enumerate(_Stacker(items, links, modules, longest).boxes()):
        for line in box.lines:
            box_of[line.item] = place
    apart: set[str | None] = {
        *framed,
        *(
            container
            for module in set(modules)
            for container in ancestry(module)
            if container != module
        ),
    }
    apart |= {
        modules[link.producer]
        for link in links
        if modules[link.producer] == modules[link.consumer]
        and box_of[link.producer] != box_of[link.consumer]
    }
    homes = [
        module.rpartition(".")[0] or None if module and module not in apart else module
        for module in modules
    ]
    return _Stacker(items, links, homes, longest).boxes()


def whole_rows(items: Sequence[Item], links: Sequence[EdgeBundle]) -> list[Box]:
    """Rows of any length, each within one module."""
    return _Stacker(items, links, [item.module for item in items], len(items)).boxes()


class _Stacker:
    """Rows and branches never leave the home of their first item."""

    def __init__(
        self,
        items: Sequence[Item],
        links: Sequence[EdgeBundle],
        homes: Sequence[str | None],
        longest: int,
    ) -> None:
        self.items = items
        self.homes = homes
        self.longest = longest
        self.incoming: list[list[EdgeBundle]] = [[] for _ in items]
        self.outgoing: list[list[EdgeBundle]] = [[] for _ in items]
        for link in links:
            self.incoming[link.consumer].append(link)
            self.outgoing[link.producer].append(link)
        self.is_branch = self._branches()

    def boxes(self) -> list[Box]:
        boxes: list[Box] = []
        placed: set[int] = set()
        for start, home in enumerate(self.homes):
            if start not in placed:
                lines = self._row(start)
                placed.update(line.item for line in lines)
                boxes.append(Box(tuple(lines), home))
        return boxes

    def _row(self, start: int) -> list[Line]:
        lines = [Line(start, 0, None), *self._branch_lines(start)]
        link = self._next_link(start)
        length = 1
        while link is not None and length < self.longest:
            lines += [Line(link.consumer, 0, link), *self._branch_lines(link.consumer)]
            link = self._next_link(link.consumer)
            length += 1
        return lines

    def _branches(self) -> list[bool]:
        """For every item: whether it begins a side branch that fits into its producer's box."""
        size = [0] * len(self.homes)
        for place in range(len(size) - 1, -1, -1):
            below = [size[link.consumer] for link in self.outgoing[place]]
            fits = all(below) and sum(below) < LARGEST_BRANCH and len(self.incoming[place]) == 1
            if fits and self.homes[self.incoming[place][0].producer] == self.homes[place]:
                size[place] = sum(below) + 1
        aside = [False] * len(size)
        for producer, onward in enumerate(self.outgoing):
            sizes = [size[link.consumer] for link in onward]
            longest = max(sizes, default=0)
            goes_on = all(sizes) and sizes.count(longest) == 1
            for link, lines in zip(onward, sizes, strict=True):
                is_row = goes_on and lines == longest and not self._ends(producer, link)
                aside[link.consumer] = bool(lines) and not is_row
        return aside

    def _ends(self, producer: int, link: EdgeBundle) -> bool:
        """Whether nothing but a parameter follows, and nobody needs the other gradients."""
        return (
            len(self.outgoing[producer]) == 1
            and not self.outgoing[link.consumer]
            and bool(self.items[link.consumer].nodes[-1].leaves)
            and link.edges[0].row.output > 0
        )

    def _branch_lines(self, item: int) -> list[Line]:
        """The side branches of an item, each line below the one that feeds it."""
        lines: list[Line] = []
        to_write = [
            (link, 1) for link in reversed(self.outgoing[item]) if self.is_branch[link.consumer]
        ]
        while to_write:
            link, indent = to_write.pop()
            lines.append(Line(link.consumer, indent, link))
            below = self.outgoing[link.consumer]
            deeper = indent + (len(below) > 1)
            to_write.extend((next_link, deeper) for next_link in reversed(below))
        return lines

    def _next_link(self, item: int) -> EdgeBundle | None:
        """The link to the item that is below in the same row."""
        onward = [link for link in self.outgoing[item] if not self.is_branch[link.consumer]]
        if len(onward) != 1 or len(self.incoming[onward[0].consumer]) != 1:
            return None
        return onward[0] if self.homes[onward[0].consumer] == self.homes[item] else None
