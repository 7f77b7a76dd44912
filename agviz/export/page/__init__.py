"""A picture as a page: one HTML file to walk through, which asks no network.

The layout is Graphviz's. What is folded in the browser takes the place of what it holds, and the
room that becomes free is closed; so everything stays where the reader has seen it. All nodes are in
the page, also those that the picture holds in one line with others.
"""

from __future__ import annotations

import html
import json
import string
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from agviz.export import facts, text
from agviz.export.css import following, variables
from agviz.export.legend import summary, title
from agviz.export.look import Look
from agviz.export.palette import LIGHT
from agviz.graph.items import ItemKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.export.pass_timeline import PassTimeline
    from agviz.graph.items import Item
    from agviz.graph.model import Leaf
    from agviz.graph.picture import Cluster, GraphLayout
    from agviz.traces.rows import NodeRow


def page(
    picture: GraphLayout, svg: str, look: Look | None = None, timeline: PassTimeline | None = None
) -> str:
    """The page.

    Args:
        picture: what is drawn, in one column.
        svg: the same as drawn by Graphviz.
        look: its colours.
        timeline: the same in time; None: the page has none.
    """
    look = look or Look()
    files = resources.files(__name__)
    data = json.dumps(_data(picture, timeline), ensure_ascii=True, separators=(",", ":"))
    about = f"{title(picture.graph)} · {summary(picture.graph)}"
    follows = look.theme is LIGHT and not look.is_fixed
    values = {
        "title": html.escape(text.plain(about)),
        "scheme": "light dark" if follows else look.theme.name,
        "colours": following() if follows else f":root {{ {variables(look.theme)} }}",
        "style": files.joinpath("page.css").read_text(encoding="utf-8"),
        "script": files.joinpath("page.js").read_text(encoding="utf-8"),
        # The only way out of a script element is its end tag.
        "data": data.replace("<", "\\u003c"),
        "svg": svg[svg.index("<svg") :],
        "timeline": "" if timeline is None else timeline.bare(),
    }
    return string.Template(files.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        values
    )


class _Line(NamedTuple):
    """A line of a box."""

    name: str
    """Its id in the picture."""
    rows: list[NodeRow]
    counted: int
    """How many nodes count there, which are in no other line."""
    feeds: list[int]
    """The items that feed it."""


def _data(picture: GraphLayout, timeline: PassTimeline | None) -> dict[str, Any]:
    """What the script knows of the picture. Times are ns since the graph task began."""
    graph = picture.graph
    begin = graph.task.begin_ns
    frame_of: dict[int, int] = {}
    frames = []
    for number, parent, cluster in _frames(picture):
        for box in cluster.boxes:
            frame_of[box] = number
        if number:
            frames.append([number, parent, text.plain(cluster.path or "")])
    fed = _fed(picture)
    lines: list[dict[str, Any]] = []
    line_of: dict[int, int] = {}
    for place, drawn in enumerate(picture.boxes):
        box_id = f"box-{picture.items[drawn.lines[0].item].index}"
        for line in drawn.lines:
            item = picture.items[line.item]
            for written in _written(item, line.item, fed):
                for row in written.rows:
                    line_of.setdefault(row.index, len(lines))
                start, end = _span(written.rows, begin)
                lines.append(
                    {
                        "id": written.name,
                        "box": box_id,
                        "frame": frame_of.get(place, 0),
                        "item": line.item,
                        "nodes": written.counted,
                        "start": start,
                        "end": end,
                        "fed": written.feeds,
                    }
                )
    return {
        "ran": graph.ran,
        "frames": frames,
        "lines": lines,
        "links": [
            [
                facts.link_id(link),
                *(_box_id(picture, place) for place in (link.producer, link.consumer)),
            ]
            for link in picture.links
        ],
        "nodes": _nodes(picture, begin, line_of),
        "axis": [] if timeline is None else timeline.places(),
        "first": {graph.task.id: 0} | {key: inner.first for key, inner in graph.inside.items()},
    }


def _frames(picture: GraphLayout) -> Iterator[tuple[int, int, Cluster]]:
    """Every frame with its number and that of the frame around it, as they are drawn."""
    number = 0
    waiting = [(0, column) for column in reversed(picture.columns)]
    while waiting:
        parent, cluster = waiting.pop()
        own = 0
        if cluster.path is not None:
            number += 1
            own = number
        yield own, parent, cluster
        waiting.extend((own, inner) for inner in reversed(cluster.clusters))


def _fed(picture: GraphLayout) -> dict[int, list[int]]:
    """For every node of a line, the items that feed it, by the index of its first node."""
    item_of = {node.row.index: at for at, item in enumerate(picture.items) for node in item.nodes}
    fed: dict[int, set[int]] = {}
    for edge in picture.graph.edges:
        producer, consumer = item_of[edge.row.producer], item_of[edge.row.consumer]
        if producer != consumer:
            fed.setdefault(picture.items[consumer].index, set()).add(producer)
    for node in picture.graph.nodes:
        for leaf in node.leaves:
            fed.setdefault(leaf.row.index, set()).add(item_of[leaf.edge.producer])
    return {index: sorted(items) for index, items in fed.items()}


def _written(item: Item, at: int, fed: dict[int, list[int]]) -> Iterator[_Line]:
    """The lines of an item."""
    rows = [node.row for node in item.nodes]
    feeds = fed.get(item.index, [])
    if item.kind is not ItemKind.NODE:
        folded = {
            leaf.row.index: leaf.row for node in item.nodes for leaf in node.leaves if leaf.use == 1
        }
        rows += folded.values()
    yield _Line(f"node-{item.index}", rows, len(rows), feeds)
    if item.kind is ItemKind.NODE:
        leaves: tuple[Leaf, ...] = item.nodes[0].leaves
        for leaf in leaves:
            name = f"node-{leaf.row.index}-use-{leaf.use}"
            feeds = fed.get(leaf.row.index, [at])
            yield _Line(name, [leaf.row], int(leaf.use == 1), feeds)


def _span(rows: list[NodeRow], begin: int) -> tuple[int | None, int | None]:
    starts = [row.start_ns for row in rows if row.start_ns is not None]
    ends = [row.end_ns for row in rows if row.end_ns is not None]
    if not starts:
        return None, None
    return min(starts) - begin, max(ends) - begin if len(ends) == len(starts) else None


def _box_id(picture: GraphLayout, item: int) -> str:
    box = picture.boxes[picture.box_of[item]]
    return f"box-{picture.items[box.lines[0].item].index}"


def _nodes(picture: GraphLayout, begin: int, line_of: dict[int, int]) -> dict[str, Any]:
    """All nodes in columns: those that ran in the order of their starts, then the others."""
    graph = picture.graph
    rows: dict[int, NodeRow] = {}
    for node in graph.nodes:
        rows[node.row.index] = node.row
        rows |= {leaf.row.index: leaf.row for leaf in node.leaves}
    ran = [row for row in rows.values() if row.start_ns is not None and row.thread is not None]
    ran.sort(key=lambda row: (row.start_ns or 0, row.order or 0))
    running = {row.index for row in ran}
    every = [*ran, *(row for row in rows.values() if row.index not in running)]
    starts = [0, *((row.start_ns or 0) - begin for row in ran)]
    words: dict[str, int] = {}

    def column(texts: Iterator[str | None]) -> list[int]:
        return [words.setdefault(text.plain(each or ""), len(words)) for each in texts]

    return {
        "ran": len(ran),
        "index": [row.index for row in every],
        "turn": [graph.turn(row) if row.graph_task in graph.inside else row.order for row in ran],
        # As differences, which are short to write.
        "start": [after - before for before, after in pairwise(starts)],
        "took": [row.duration_ns for row in ran],
        "name": column(row.short_name for row in every),
        "module": column(row.module for row in every),
        "parameter": column(row.parameter for row in every),
        "line": _runs_of([line_of.get(row.index, -1) for row in every]),
        "words": list(words),
    }


def _runs_of(values: Sequence[int]) -> list[list[int]]:
    """Each value and how often it follows itself."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return runs
