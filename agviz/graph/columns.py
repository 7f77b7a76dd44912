"""Columns: a backward pass is long and thin, a page is not.

A tall picture is cut where few edges pass, and the parts are set beside each other like the
columns of a newspaper. The estimates of sizes here only decide where to cut.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections import defaultdict
from typing import TYPE_CHECKING

from agviz.graph.items import ItemKind, ancestry, common_module
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.graph.items import EdgeBundle, Item
    from agviz.graph.stacks import Box

LINE = 20.0
"""Height of a line of a box, in points."""
GAP = 45.0
"""Height between boxes."""
LETTER = 5.6
"""Width of a letter."""
CELLS = 30.0
"""Room around the words of a box's five cells."""
NUMBER, TIME = 5, 7
"""Letters of a turn in execution, and of a time."""
LONGEST = 28
"""Letters of a module, or a shape, in a line."""
BESIDE = 18.0
"""Room between boxes, and between columns."""
MOSTLY = 0.8
"""A page is wide enough when this part of its height fits."""
ROOM = 1.5
"""Width of a page, compared with the boxes on it: edges and frames need room, too."""
TALL = 1000.0
"""Height up to which one column is fine."""
WIDE_ENOUGH = 1.5
"""Height over width up to which one column is fine."""
PAGE = 0.6
"""Height over width that columns aim at."""
HIGHEST = 1.8
"""No column is higher than this many times the height that is aimed at."""
UNEVEN = 30.0
"""How bad a column of twice the height is, in links that are cut."""
TORN = 4.0
"""How bad it is to cut through a module, in links that are cut."""


def columns(
    items: Sequence[Item],
    boxes: Sequence[Box],
    links: Sequence[EdgeBundle],
    box_of: Sequence[int],
    widest: float = math.inf,
) -> list[int]:
    """For every box the column it is in, from 0; links never lead to an earlier one.

    Args:
        items: producers before consumers.
        boxes: of these items; in the order of their first items, which is kept.
        links: those between boxes.
        box_of: for every item the position of its box.
        widest: all of them should be no wider than this, in points.
    """
    order = _order(boxes, links, box_of)
    heights = [_height(items, box) for box in boxes]
    bottom = _bottoms(order, heights, links, box_of)
    height = max(bottom)
    width = _page_width(
        [(end - tall - GAP, end) for end, tall in zip(bottom, heights, strict=True)],
        [_width(items, box) for box in boxes],
    )
    column = [0] * len(boxes)
    if height < TALL or height / width < WIDE_ENOUGH:
        return column
    beside = max(1, int(widest / width)) if widest < math.inf else len(boxes)
    column_height = max(math.sqrt(PAGE * height * width), TALL / 2, height / beside)
    for start in _cuts(order, boxes, bottom, links, box_of, column_height):
        for box in order[start:]:
            column[box] += 1
    return column


def _order(boxes: Sequence[Box], links: Sequence[EdgeBundle], box_of: Sequence[int]) -> list[int]:
    """The boxes with producers first, otherwise as they are."""
    following: list[list[int]] = [[] for _ in boxes]
    missing = [0] * len(boxes)
    for link in links:
        following[box_of[link.producer]].append(box_of[link.consumer])
        missing[box_of[link.consumer]] += 1
    ready = [place for place in range(len(boxes)) if not missing[place]]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for consumer in following[order[-1]]:
            missing[consumer] -= 1
            if not missing[consumer]:
                heapq.heappush(ready, consumer)
    return order + sorted(set(range(len(boxes))).difference(order))


def _height(items: Sequence[Item], box: Box) -> float:
    lines = sum(
        1 + (len(item.nodes[0].leaves) if item.kind is ItemKind.NODE else 0)
        for item in (items[line.item] for line in box.lines)
    )
    return LINE * lines


def extent(
    items: Sequence[Item],
    boxes: Sequence[Box],
    links: Sequence[EdgeBundle],
    box_of: Sequence[int],
    column_of: Sequence[int],
) -> tuple[float, float]:
    """About how wide and how high the picture is, in points."""
    feeding: defaultdict[int, set[int]] = defaultdict(set)
    for link in links:
        feeding[box_of[link.consumer]].add(box_of[link.producer])
    rank: dict[int, int] = {}
    widths: defaultdict[tuple[int, int], float] = defaultdict(float)
    heights: defaultdict[tuple[int, int], float] = defaultdict(float)
    for box in _order(boxes, links, box_of):
        column = column_of[box]
        above = [rank[each] for each in feeding[box] if column_of[each] == column]
        own = rank[box] = max((each + 1 for each in above), default=0)
        widths[column, own] += _width(items, boxes[box]) + BESIDE
        heights[column, own] = max(heights[column, own], _height(items, boxes[box]) + GAP)
        for passed in above:
            for between in range(passed + 1, own):
                widths[column, between] += BESIDE
    count = max(column_of) + 1
    wide = sum(
        max(width for (at, _), width in widths.items() if at == column) for column in range(count)
    )
    high = max(
        sum(height for (at, _), height in heights.items() if at == column)
        for column in range(count)
    )
    return wide + BESIDE * count, high


def _width(items: Sequence[Item], box: Box) -> float:
    name = module = received = 0
    for line in box.lines:
        item, row = items[line.item], items[line.item].nodes[0].row
        if item.kind is not ItemKind.NODE:
            name = max(name, min(48, len(item.title)) + 14)
            continue
        name = max(name, len(row.short_name) + 2 * line.indent)
        for leaf in item.nodes[0].leaves[:6]:
            own = len(leaf.row.parameter or "leaf tensor") - len(row.module or "")
            use = 13 * (leaf.uses > 1)
            name = max(name, own + len(write_shape(leaf.row.shape)) + 9 + use + 3 * line.indent)
        if row.input_shapes:
            received = max(received, len(write_shape(row.input_shapes[0])))
        module = max(module, len(item.module or "") - len(box.module or ""))
    letters = NUMBER + name + min(module, LONGEST) + min(received, LONGEST) + TIME
    return LETTER * letters + CELLS


def _page_width(spans: Sequence[tuple[float, float]], widths: Sequence[float]) -> float:
    """How wide one column of everything would be: room for what is beside each other.

    Args:
        spans: top and bottom of every box.
        widths: the width of every box.
    """
    changes = sorted(
        (at, change)
        for (top, end), width in zip(spans, widths, strict=True)
        for at, change in ((top, width), (end, -width))
    )
    beside = list(itertools.accumulate(change for _, change in changes))
    stretches = sorted(
        (wide, below - above)
        for wide, ((above, _), (below, _)) in zip(beside, itertools.pairwise(changes), strict=False)
    )
    reached = list(itertools.accumulate(tall for _, tall in stretches))
    place = bisect.bisect_left(reached, MOSTLY * reached[-1])
    return ROOM * stretches[place][0]


def _bottoms(
    order: Sequence[int],
    heights: Sequence[float],
    links: Sequence[EdgeBundle],
    box_of: Sequence[int],
) -> list[float]:
    """For every box, where it would end if all were in one column."""
    feeding: defaultdict[int, set[int]] = defaultdict(set)
    for link in links:
        feeding[box_of[link.consumer]].add(box_of[link.producer])
    bottom = [0.0] * len(order)
    for box in order:
        above = max((bottom[producer] for producer in feeding[box]), default=0.0)
        bottom[box] = above + heights[box] + GAP
    return bottom


def _cuts(
    order: Sequence[int],
    boxes: Sequence[Box],
    bottom: Sequence[float],
    links: Sequence[EdgeBundle],
    box_of: Sequence[int],
    column_height: float,
) -> list[int]:
    """Positions in ``order`` at which a new column starts.

    Chosen so that the sum of what is bad about cuts and about columns is smallest: links that are
    cut, modules that are cut, columns that are much higher or lower than ``column_height``.
    """
    reached = [0.0, *itertools.accumulate((bottom[box] for box in order), max)]
    passing = _passing(order, links, box_of)
    framed = {box.module for box in boxes}
    best = [0.0] * len(reached)
    previous = [0] * len(reached)
    for end in range(1, len(reached)):
        best[end] = math.inf
        for start in range(end - 1, -1, -1):
            height = (reached[end] - reached[start]) / column_height
            if height > HIGHEST and start < end - 1:
                break
            cost = best[start] + UNEVEN * (height - 1) ** 2
            if start:
                modules = (boxes[order[start - 1]].module, boxes[order[start]].module)
                torn = sum(path in framed for path in ancestry(common_module(modules)))
                cost += passing[start] + TORN * torn
            if cost < best[end]:
                best[end], previous[end] = cost, start
    cuts = []
    place = previous[-1]
    while place:
        cuts.append(place)
        place = previous[place]
    return cuts[::-1]


def _passing(order: Sequence[int], links: Sequence[EdgeBundle], box_of: Sequence[int]) -> list[int]:
    """For every position in ``order``: the number of links from before it to it or after it."""
    place = {box: position for position, box in enumerate(order)}
    change = [0] * (len(order) + 1)
    for link in links:
        change[place[box_of[link.producer]] + 1] += 1
        change[place[box_of[link.consumer]] + 1] -= 1
    return list(itertools.accumulate(change))
