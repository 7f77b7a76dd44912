"""The picture: boxes, the links between them, and the modules around them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agviz.graph.columns import columns, extent
from agviz.graph.fold import GraphFolding
from agviz.graph.items import ancestry, pass_frames
from agviz.graph.model import as_it_ran
from agviz.graph.stacks import LONGEST_STACK, Box, stack
from agviz.graph.view import DEFAULT_BUDGET, By, FoldMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agviz.graph.fold import Folded
    from agviz.graph.items import EdgeBundle, Item
    from agviz.graph.model import TaskGraph

WIDEST = 1_800.0
"""Points across a picture whose smallest text, of 10 points, has 8 px where it is shown 1,440 px
wide."""
HIGHEST = 1.25
"""Height over :data:`WIDEST` up to which nothing is folded."""
UNCERTAIN = 1.25
"""How many times as wide as it is estimated a picture may become."""
MOST_FIRST = (DEFAULT_BUDGET, 300, 200, 150, 100, 70, 50, 35, 25, 15, 8)
"""Items that are tried in turn until all can be read."""
TOO_SMALL = "more would be too small to read at 1,440 px; --budget N draws up to N nodes"
UNREADABLE = "text is smaller than 8 px where it is shown 1,440 px wide; --around NODE draws a part"
DRAWN_SEPARATELY = 40
"""Up to this many items, rows are drawn as boxes below each other and not as lines of one."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A module with more than one box, or (``path`` is None) a whole column."""

    path: str | None
    boxes: list[int] = field(default_factory=list)
    """Positions of the boxes directly in it."""
    clusters: list[Cluster] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Everything that is drawn of a graph, and where."""

    graph: TaskGraph
    by: By
    items: tuple[Item, ...]
    boxes: tuple[Box, ...]
    links: tuple[EdgeBundle, ...]
    """Those between boxes; :attr:`agviz.graph.stacks.Line.link` holds those within them."""
    column_of: tuple[int, ...]
    """For every box: its column."""
    box_of: tuple[int, ...]
    """For every item: the position of its box."""
    columns: tuple[Cluster, ...]
    """From left to right; links lead downwards in a column, and from a column to a later one."""
    notes: tuple[str, ...]
    """What was left out or folded, in sentences."""


def compose(
    graph: TaskGraph,
    budget: int | None = DEFAULT_BUDGET,
    what: FoldMode = FoldMode.AUTO,
    by: By = By.MODULE,
    *,
    one_column: bool = False,
    widest: float = WIDEST,
) -> GraphLayout:
    """Fold the graph to ``budget`` items and put them into boxes and modules.

    Args:
        graph: what is drawn.
        budget: at most this many items; None: as many as can be read, and no more than 400.
        what: what is folded in any case.
        by: what items are grouped by.
        one_column: leave it as long as it is.
        widest: how wide a picture that can be read is at most, in points.
    """
    if by is By.EXECUTION:
        graph = as_it_ran(graph)
    folding = GraphFolding(graph, what, by)
    if budget is not None:
        return _laid_out(graph, folding.to(budget), by, one_column=one_column)
    readable = _readable(graph, folding, by, widest)
    if readable is not None:
        return readable
    picture = _laid_out(graph, GraphFolding(graph, what, by).to(DEFAULT_BUDGET), by)
    return replace(picture, notes=(*picture.notes, UNREADABLE))


def _readable(graph: TaskGraph, folding: GraphFolding, by: By, widest: float) -> GraphLayout | None:
    """The picture with most items that can be read; None: there is none.

    Stretches of the execution order, which say little, are folded only where the budget had some.
    """
    drawn, limit = 0, widest / UNCERTAIN
    for fewer in MOST_FIRST:
        folded = folding.to(fewer, ranges=fewer == DEFAULT_BUDGET or folding.has_ranges)
        if len(folded.items) == drawn:
            continue
        drawn = len(folded.items)
        for beside in (math.inf, limit):
            picture = _laid_out(graph, folded, by, beside)
            wide, high = extent(
                picture.items, picture.boxes, picture.links, picture.box_of, picture.column_of
            )
            if wide <= limit and high <= HIGHEST * widest:
                notes = [TOO_SMALL] * (fewer < DEFAULT_BUDGET)
                return replace(picture, notes=(*picture.notes, *notes))
    return None


def _laid_out(
    graph: TaskGraph,
    folded: Folded,
    by: By,
    widest: float = math.inf,
    *,
    one_column: bool = False,
) -> GraphLayout:
    items, links = folded.items, folded.links
    small = len(items) <= DRAWN_SEPARATELY
    passes = frozenset(pass_frames(graph, by).values())
    longest = 1 if small else LONGEST_STACK
    boxes = stack(items, links, longest=longest, framed=passes)
    box_of = [0] * len(items)
    for place, box in enumerate(boxes):
        for line in box.lines:
            box_of[line.item] = place
    between = tuple(link for link in links if box_of[link.producer] != box_of[link.consumer])
    column_of = [0] * len(boxes) if one_column else columns(items, boxes, between, box_of, widest)
    ends = [(box_of[link.producer], box_of[link.consumer]) for link in between]
    torn = _left_and_entered_again(boxes, ends) - passes
    return GraphLayout(
        graph=graph,
        by=by,
        items=items,
        boxes=tuple(boxes),
        links=between,
        column_of=tuple(column_of),
        box_of=tuple(box_of),
        columns=tuple(
            _clusters(
                {i: box for i, box in enumerate(boxes) if column_of[i] == column}, torn, passes
            )
            for column in range(max(column_of) + 1)
        ),
        notes=(*graph.notes, *(f"folded: {note}" for note in folded.notes)),
    )


def _left_and_entered_again(
    boxes: Sequence[Box], links: Iterable[tuple[int, int]]
) -> frozenset[str]:
    """Modules that gradients leave and enter again, as one that is called twice.

    A frame around all of such a module pulls apart what is between its calls.
    """
    following: list[list[int]] = [[] for _ in boxes]
    for tail, head in links:
        following[tail].append(head)
    inside: dict[str, set[int]] = {}
    for place, box in enumerate(boxes):
        for path in ancestry(box.module):
            inside.setdefault(path, set()).add(place)
    found = set()
    for path, members in inside.items():
        if len(members) == len(boxes):
            continue
        waiting = [head for tail in members for head in following[tail] if head not in members]
        met = set(waiting)
        while waiting:
            onward = [head for head in following[waiting.pop()] if head not in met]
            if not members.isdisjoint(onward):
                found.add(path)
                break
            met.update(onward)
            waiting.extend(onward)
    return frozenset(found)


def _clusters(
    boxes: Mapping[int, Box], torn: frozenset[str], passes: frozenset[str] = frozenset()
) -> Cluster:
    """Modules around boxes, but for those in ``torn``, and passes inside of nodes.

    A module that holds one box only is named in the box, and one that merely contains other
    modules is part of their names: a frame costs room and should say something.
    """
    boxes_below: Counter[str] = Counter()
    for box in boxes.values():
        boxes_below.update(ancestry(box.module))
    own = {box.module for box in boxes.values()}
    framed = {path for path, count in boxes_below.items() if count > 1 and path in own} - torn
    framed |= passes

    root = Cluster(None)
    by_path: dict[str, Cluster] = {}
    for place, box in boxes.items():
        parent = root
        for path in ancestry(box.module):
            if path in framed:
                if path not in by_path:
                    by_path[path] = Cluster(path)
                    parent.clusters.append(by_path[path])
                parent = by_path[path]
        parent.boxes.append(place)
    return root
