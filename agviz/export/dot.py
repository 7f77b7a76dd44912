"""DOT: the picture of a backward pass as text for Graphviz, the same text for the same trace.

Nodes have the id ``node-<index>``, parameters ``node-<index>-use-<n>``, boxes ``box-<index of the
first node>``, edges ``edge-<producer>-<output>`` and modules ``frame-<n>``, all with the indices of
the trace; Graphviz writes a line's id with ``a_`` in front. Names of nodes, which Graphviz makes
titles for who can't see the picture, are words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import graphviz

from agviz.export import facts, text
from agviz.export.digraph import Picture
from agviz.export.labels import Labels, relative
from agviz.export.legend import heading, summary, title
from agviz.export.look import Look
from agviz.graph.items import ItemKind, pass_frames
from agviz.graph.model import Differs
from agviz.graph.picture import WIDEST, Cluster, GraphLayout, compose
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.graph.items import EdgeBundle
    from agviz.graph.model import TaskGraph
    from agviz.graph.view import GraphView

MOST_ONWARD = 3
"""Numbers in one reference to other columns."""
FONT = "Helvetica,Arial,sans-serif"
LONGEST_TITLE = 200
LARGE = 1_000
"""Boxes above which Graphviz is asked to hurry."""
HURRY = {"splines": "line", "nslimit": "0.1", "mclimit": "0.1"}
"""Straight edges, and less searching for good places: 2 s where it would be 12, or minutes with
curves. ``nslimit1`` is not among them: cut short, the ranking it limits crashes Graphviz 14.1."""

UNSEEN = {"style": "invis", "margin": "0", "label": ""}
"""A cluster of which nothing is seen."""


def compose_view(
    graph: TaskGraph, view: GraphView, *, one_column: bool = False, widest: float = WIDEST
) -> GraphLayout:
    """The picture of a graph as ``view`` wants it; the rest is as for :func:`compose`."""
    return compose(graph, view.budget, view.fold, view.by, one_column=one_column, widest=widest)


def draw_picture(picture: GraphLayout, look: Look | None = None, *, hurry: bool = False) -> Picture:
    """The picture in the words of the ``graphviz`` package, which knows how to quote.

    Args:
        picture: what is drawn.
        look: colours and links.
        hurry: let Graphviz draw straight edges and search less; large pictures are drawn so anyway.
    """
    return _Drawing(picture, look or Look()).dot(hurry=hurry or len(picture.boxes) > LARGE)


class _Drawing:
    def __init__(self, picture: GraphLayout, look: Look) -> None:
        self._picture = picture
        self._look = look
        self._theme = look.theme
        self._labels = Labels(picture, look)
        self._names = [_box_name(picture, place) for place in range(len(picture.boxes))]
        self._critical = set(pairwise(picture.graph.marks.critical.nodes))
        self._frames = 0
        self._frame_of: dict[tuple[int, str], str] = {}
        """Names of the frames in each column, by path."""
        self._passes = pass_frames(picture.graph, picture.by)
        self._dot: Picture

    def dot(self, *, hurry: bool) -> Picture:
        """The whole graph."""
        picture, theme = self._picture, self._theme
        self._dot = Picture(
            name=_plain_name(f"{title(picture.graph)} · {summary(picture.graph)}", LONGEST_TITLE),
            graph_attr={
                "label": heading(picture, theme),
                "labelloc": "t",
                "labeljust": "l",
                "fontname": FONT,
                "fontsize": "11",
                "fontcolor": theme.ink,
                "bgcolor": theme.paper,
                "nodesep": "0.25",
                "ranksep": "0.3",
                "pad": "0.3",
                "tooltip": " ",
                # The line to a pass inside of a node ends at the frame around it.
                **({"compound": "true"} if picture.graph.inside else {}),
                **(HURRY if hurry else {}),
            },
            node_attr={
                "shape": "plain",
                "fontname": FONT,
                "fontsize": "11",
                "fontcolor": theme.ink,
            },
            edge_attr={
                "fontname": FONT,
                "fontsize": "10",
                "fontcolor": theme.faint,
                "color": theme.frame,
                "arrowsize": "0.7",
            },
        )
        self._draw_columns()
        for link in picture.links:
            self._draw_link(link)
        self._draw_onward()
        self._dot.notes = picture.notes
        self._dot.heading = text.plain(f"{title(picture.graph)} · {summary(picture.graph)}")
        return self._dot

    def _draw_columns(self) -> None:
        """The columns, each held together by an invisible node above it.

        Graphviz lays out unconnected parts one by one and sets them side by side in this order, but
        those without any cluster last: so each column begins with one, which shows nothing.
        """
        picture, dot = self._picture, self._dot
        if len(picture.columns) > 1:
            dot.attr("graph", pack="30", packmode=f"array_ti{len(picture.columns)}")
        ends = [
            (picture.box_of[link.producer], picture.box_of[link.consumer]) for link in picture.links
        ]
        column_of = picture.column_of
        fed = {head for tail, head in ends if column_of[tail] == column_of[head]}
        for number, column in enumerate(picture.columns):
            if len(picture.columns) > 1:
                with dot.subgraph(name=f"cluster column {number}", graph_attr=UNSEEN) as top:
                    top.node(f"column {number}", label="", style="invis", shape="point")
                for place in sorted(set(_boxes(column)) - fed):
                    dot.edge(f"column {number}", self._names[place], style="invis", weight="0")
            self._draw_cluster(dot, column, number)

    def _draw_cluster(self, dot: graphviz.Digraph, cluster: Cluster, column: int) -> None:
        picture, theme = self._picture, self._theme
        for place in cluster.boxes:
            box = picture.boxes[place]
            first = picture.items[box.lines[0].item]
            dot.node(
                self._names[place],
                label=self._labels.box(box, cluster.path),
                id=f"box-{first.index}",
                tooltip=_escaped(facts.about_item(picture.graph, first)),
            )
        for inner in cluster.clusters:
            path = inner.path or ""
            self._frames += 1
            frame = {
                "id": f"frame-{self._frames}",
                "label": _escaped([text.shorten(relative(path, cluster.path))]),
                "tooltip": _escaped([path]),
                "fontsize": "12",
                "color": theme.frame,
                "style": "rounded",
                "bgcolor": theme.shade,
                "labeljust": "l",
                "margin": "8",
            }
            name = f"cluster {_plain_name(path)} {self._frames}"
            self._frame_of[column, path] = name
            with dot.subgraph(name=name, graph_attr=frame) as sub:
                self._draw_cluster(sub, inner, column)

    def _draw_link(self, link: EdgeBundle) -> None:
        picture, dot = self._picture, self._dot
        name = facts.link_id(link)
        tail, head = (picture.box_of[place] for place in (link.producer, link.consumer))
        start = self._names[tail]
        if picture.column_of[tail] != picture.column_of[head]:
            start = f"{name} from"
            dot.node(start, label=_escaped([f"from {self._number(link.producer)}"]), **self._sign)
            dot.edge(f"column {picture.column_of[head]}", start, style="invis", weight="0")
        look = self._link_look([link])
        frame = self._frame_of.get((picture.column_of[head], self._passes.get(_called(link), "")))
        if frame is not None:
            look["lhead"] = frame
        dot.edge(start, self._names[head], id=name, **look)

    @property
    def _sign(self) -> dict[str, str]:
        """A reference to another column."""
        theme = self._theme
        return {
            "shape": "cds",
            "fontsize": "10",
            "color": theme.frame,
            "fontcolor": theme.faint,
            "height": "0.2",
        }

    def _draw_onward(self) -> None:
        """Below a box, the numbers of what it feeds in other columns."""
        picture, dot = self._picture, self._dot
        onward: defaultdict[int, list[EdgeBundle]] = defaultdict(list)
        for link in picture.links:
            tail, head = (picture.box_of[place] for place in (link.producer, link.consumer))
            if picture.column_of[tail] != picture.column_of[head]:
                onward[tail].append(link)
        for tail, links in onward.items():
            said = [self._number(link.consumer) for link in links]
            more = f" and {len(said) - MOST_ONWARD:,} more" if len(said) > MOST_ONWARD else ""
            name = f"to {', '.join(said[:MOST_ONWARD])}{more}"
            sign = f"{self._names[tail]} onward"
            dot.node(sign, label=_escaped([name]), **self._sign)
            dot.edge(self._names[tail], sign, **self._link_look(links))

    def _link_look(self, links: Sequence[EdgeBundle]) -> dict[str, str]:
        picture, theme = self._picture, self._theme
        graph = picture.graph
        items = [(picture.items[link.producer], picture.items[link.consumer]) for link in links]
        edges = [edge.row for link in links for edge in link.edges]
        places = {(edge.producer, edge.output) for edge in edges}
        about = [line for link in links for line in facts.about_link(graph, link, picture.items)]
        if len(about) > facts.MOST_EDGES + 1:
            about[facts.MOST_EDGES :] = [f"and {len(about) - facts.MOST_EDGES:,} more"]
        look = {
            "xlabel": self._edge_label(links[0]) if len(links) == 1 else "",
            "tooltip": _escaped(about),
        }
        if any((edge.producer, edge.consumer) in self._critical for edge in edges):
            look |= {"color": theme.ink, "penwidth": "1.8"}
        if places & graph.marks.nonfinite:
            look |= {"color": theme.alarm, "penwidth": "2.6"}
        if not any(all(facts.is_executed(graph, item) for item in pair) for pair in items):
            look["style"] = "dashed"
        if all(edge.is_call for link in links for edge in link.edges):
            look |= {"style": "dotted", "color": theme.faint, "penwidth": "1.5"}
        if graph.difference is not None:
            differs = {graph.difference.edges.get(place) for place in places}
            if differs & {Differs.ONLY_HERE, Differs.ONLY_THERE}:
                look |= {"color": theme.alarm, "penwidth": "1.8"}
            look["style"] = "dashed" if Differs.ONLY_THERE in differs else "solid"
        return look

    def _edge_label(self, link: EdgeBundle) -> str:
        """What a gradient's way says: the input it leads to, its shape, and whether others meet it.

        Where the consumer has but one input, or all have one shape, its own line shows that.
        """
        consumer = self._picture.items[link.consumer]
        if link.edges[0].is_call:
            return ""
        if len(link.edges) > 1:
            return f"{len(link.edges):,} edges"
        if consumer.kind is not ItemKind.NODE or consumer.nodes[0].row.num_inputs < 2:
            return ""
        edge = link.edges[0]
        meeting = f"{facts.MEETING} " if edge.meeting > 1 else ""
        alike = len(set(consumer.nodes[0].row.input_shapes or ())) < 2
        said = "" if alike else write_shape(edge.shape)
        return f"{meeting}input {edge.row.slot} {said}".rstrip()

    def _number(self, item: int) -> str:
        rows = [node.row for node in self._picture.items[item].nodes]
        return facts.numbers(self._picture.graph, rows) or text.shorten(rows[0].short_name)


def _called(link: EdgeBundle) -> int:
    """The pass that a link calls; -1 where gradients flow along it."""
    called = {edge.called for edge in link.edges}
    return called.pop() if len(called) == 1 else -1


def _box_name(picture: GraphLayout, place: int) -> str:
    """The name of a box: words, for who has the picture read aloud."""
    lines = picture.boxes[place].lines
    first = picture.items[lines[0].item]
    name = _plain_name(first.title or first.nodes[0].row.short_name)
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{name} (node {first.index}){more}"


def _plain_name(name: str, longest: int = text.LONGEST_NAME) -> str:
    """A name without anything that means something to Graphviz, as colons and backslashes do."""
    return re.sub(rf"[^\w .,·(){text.TIMES}…-]", "_", text.shorten(text.plain(name), longest))


def _boxes(cluster: Cluster) -> Iterator[int]:
    yield from cluster.boxes
    for inner in cluster.clusters:
        yield from _boxes(inner)


def _escaped(lines: Iterable[str]) -> str:
    """Lines as the text of an attribute, where the letter n after a backslash ends a line."""
    said: str = graphviz.nohtml("\\n".join(map(text.in_attribute, lines)))
    return said
