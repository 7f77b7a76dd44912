"""A picture as a page: one HTML file to walk through, which asks no network.

The layout is Graphviz's. What is folded in the browser takes the place of what it holds, and the
room that becomes free is closed; so everything stays where the reader has seen it.
"""

from __future__ import annotations

import html
import json
import string
from importlib import resources
from typing import TYPE_CHECKING, Any

from agviz.export import facts, text
from agviz.export.legend import summary, title
from agviz.export.look import Look
from agviz.graph.items import ItemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.graph.items import Item
    from agviz.graph.model import Leaf
    from agviz.graph.picture import Cluster, GraphLayout
    from agviz.traces.rows import NodeRow

MOST_RUNS = 20_000
"""Executions drawn in the lanes; of more, the lanes show what the picture shows."""


def page(picture: GraphLayout, svg: str, look: Look | None = None) -> str:
    """The page.

    Args:
        picture: what is drawn, in one column.
        svg: the same as drawn by Graphviz.
        look: its colours.
    """
    look = look or Look()
    theme = look.theme
    files = resources.files(__name__)
    data = json.dumps(_data(picture, look), ensure_ascii=True, separators=(",", ":"))
    about = f"{title(picture.graph)} · {summary(picture.graph)}"
    values = {
        "title": html.escape(text.plain(about)),
        "scheme": theme.name,
        "ink": theme.ink,
        "faint": theme.faint,
        "frame": theme.frame,
        "paper": theme.paper,
        "shade": theme.shade,
        "alarm": theme.alarm,
        "style": files.joinpath("page.css").read_text(encoding="utf-8"),
        "script": files.joinpath("page.js").read_text(encoding="utf-8"),
        # The only way out of a script element is its end tag.
        "data": data.replace("<", "\\u003c"),
        "svg": svg[svg.index("<svg") :],
    }
    return string.Template(files.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        values
    )


def _data(picture: GraphLayout, look: Look) -> dict[str, Any]:
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
    lines = []
    for place, drawn in enumerate(picture.boxes):
        box_id = f"box-{picture.items[drawn.lines[0].item].index}"
        for line in drawn.lines:
            item = picture.items[line.item]
            for name, rows, counted, feeds in _written(item, line.item, fed):
                start, end = _span(rows, begin)
                lines.append(
                    {
                        "id": name,
                        "box": box_id,
                        "frame": frame_of.get(place, 0),
                        "item": line.item,
                        "nodes": counted,
                        "start": start,
                        "end": end,
                        "fed": feeds,
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
        "lanes": [
            {
                "name": text.plain(lane.name),
                "mark": (shown := look.theme.lane(lane.position)).mark,
                "colour": shown.strong,
            }
            for lane in sorted(graph.lanes.values(), key=lambda lane: lane.position)
        ],
        "runs": _runs(picture, begin),
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


def _written(
    item: Item, at: int, fed: dict[int, list[int]]
) -> Iterator[tuple[str, list[NodeRow], int, list[int]]]:
    """The lines of an item: their ids, the nodes in them, how many count there, what feeds them."""
    rows = [node.row for node in item.nodes]
    folded = 0
    if item.kind is not ItemKind.NODE:
        folded = sum(leaf.use == 1 for node in item.nodes for leaf in node.leaves)
    yield f"node-{item.index}", rows, len(rows) + folded, fed.get(item.index, [])
    if item.kind is ItemKind.NODE:
        leaves: tuple[Leaf, ...] = item.nodes[0].leaves
        for leaf in leaves:
            name = f"node-{leaf.row.index}-use-{leaf.use}"
            yield name, [leaf.row], int(leaf.use == 1), fed.get(leaf.row.index, [at])


def _span(rows: list[NodeRow], begin: int) -> tuple[int | None, int | None]:
    starts = [row.start_ns for row in rows if row.start_ns is not None]
    ends = [row.end_ns for row in rows if row.end_ns is not None]
    if not starts:
        return None, None
    return min(starts) - begin, max(ends) - begin if len(ends) == len(starts) else None


def _box_id(picture: GraphLayout, item: int) -> str:
    box = picture.boxes[picture.box_of[item]]
    return f"box-{picture.items[box.lines[0].item].index}"


def _runs(picture: GraphLayout, begin: int) -> list[list[Any]]:
    """Executions: turn, start, duration or null, lane and name, in the order of their starts."""
    lanes = {thread: lane.position for thread, lane in picture.graph.lanes.items()}
    rows: dict[int, NodeRow] = {}
    for node in picture.graph.nodes:
        rows[node.row.index] = node.row
        rows |= {leaf.row.index: leaf.row for leaf in node.leaves}
    ran = [row for row in rows.values() if row.start_ns is not None and row.thread is not None]
    if len(ran) > MOST_RUNS:
        drawn = {item.index for item in picture.items}
        ran = [row for row in ran if row.index in drawn]
    ran.sort(key=lambda row: (row.start_ns or 0, row.order or 0))
    return [
        [
            picture.graph.turn(row) if row.graph_task in picture.graph.inside else row.order,
            (row.start_ns or 0) - begin,
            row.duration_ns,
            lanes.get(-1 if row.thread is None else row.thread, 0),
            text.plain(row.short_name),
        ]
        for row in ran
    ]
