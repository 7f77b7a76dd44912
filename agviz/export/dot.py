"""DOT: the picture of a backward pass as text for Graphviz, the same text for the same trace."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import graphviz

from agviz.export import facts, text
from agviz.export.labels import box_label, relative
from agviz.export.legend import heading
from agviz.export.palette import ALARM, FAINT, FRAME, INK, PAPER, SHADE
from agviz.graph.fold import DEFAULT_BUDGET
from agviz.graph.items import Kind
from agviz.graph.model import read_graph
from agviz.graph.picture import Cluster, Picture, compose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.graph.items import Link
    from agviz.traces.reader import Trace

MOST_ONWARD = 3
"""Numbers in one reference to other columns."""
CONNECTOR = {"shape": "cds", "fontsize": "9", "color": FRAME, "fontcolor": FAINT, "height": "0.2"}
FONT = "Helvetica,Arial,sans-serif"
LARGE = 1_000
"""Boxes above which Graphviz is told to hurry."""
HURRY = {"splines": "line", "nslimit": "0.1", "mclimit": "0.1"}
"""Straight edges, and less searching for good places: 2 s where it would be 12, or minutes with
curves. ``nslimit1`` is not among them: cut short, the ranking it limits crashes Graphviz 14.1."""


def to_dot(
    trace: Trace,
    graph_task: int | None = None,
    *,
    budget: int = DEFAULT_BUDGET,
    straight: bool = False,
) -> str:
    """The picture of one graph task as DOT.

    Nodes have the id ``node-<index>``, parameters ``node-<index>-use-<n>`` and edges
    ``edge-<producer>-<output>``, all with the indices of the trace; Graphviz writes a line's id
    with ``a_`` in front.

    Args:
        trace: where it is recorded.
        graph_task: its id; None: see :func:`agviz.graph.model.choose_graph_task`.
        budget: number of nodes to draw; more than that are folded.
        straight: draw edges as straight lines, which is faster.

    Raises:
        agviz.errors.TraceError: no such graph task, or it has no graph.
    """
    picture = compose(read_graph(trace, graph_task), budget)
    return draw_picture(picture, straight=straight).source


def draw_picture(picture: Picture, *, straight: bool = False) -> graphviz.Digraph:
    """The picture in the words of the ``graphviz`` package, which knows how to quote."""
    graph = picture.graph
    large = HURRY if len(picture.boxes) > LARGE else {}
    lines = {"splines": "line"} if straight else {}
    dot: graphviz.Digraph = graphviz.Digraph(
        name=f"backward pass {graph.task.id}",
        graph_attr={
            "label": heading(picture),
            "labelloc": "t",
            "labeljust": "l",
            "fontname": FONT,
            "fontsize": "11",
            "fontcolor": INK,
            "bgcolor": PAPER,
            "nodesep": "0.25",
            "ranksep": "0.3",
            "pad": "0.3",
            "tooltip": " ",
            **large,
            **lines,
        },
        node_attr={"shape": "plain", "fontname": FONT, "fontsize": "11", "fontcolor": INK},
        edge_attr={
            "fontname": FONT,
            "fontsize": "9",
            "fontcolor": FAINT,
            "color": FRAME,
            "arrowsize": "0.7",
        },
    )
    _draw_columns(dot, picture)
    for link in picture.links:
        _draw_link(dot, picture, link)
    _draw_onward(dot, picture)
    return dot


def _draw_columns(dot: graphviz.Digraph, picture: Picture) -> None:
    """The columns, each held together by an invisible node above it.

    Graphviz lays out unconnected parts one by one and sets them side by side in this order.
    """
    if len(picture.columns) > 1:
        dot.attr("graph", pack="30", packmode=f"array_ti{len(picture.columns)}")
    ends = [
        (picture.box_of[link.producer], picture.box_of[link.consumer]) for link in picture.links
    ]
    column_of = picture.column_of
    fed = {head for tail, head in ends if column_of[tail] == column_of[head]}
    for number, column in enumerate(picture.columns):
        if len(picture.columns) > 1:
            dot.node(f"column {number}", label="", style="invis", shape="point")
            for place in sorted(set(_boxes(column)) - fed):
                dot.edge(f"column {number}", _name(picture, place), style="invis", weight="0")
        _draw_cluster(dot, picture, column)


def _draw_cluster(dot: graphviz.Digraph, picture: Picture, cluster: Cluster) -> None:
    for place in cluster.boxes:
        box = picture.boxes[place]
        first = picture.items[box.lines[0].item]
        dot.node(
            _name(picture, place),
            label=box_label(picture, box, cluster.path),
            id=f"box-{first.index}",
            tooltip=_escaped(facts.about_item(picture.graph, first)),
        )
    for inner in cluster.clusters:
        path = inner.path or ""
        name = _name(picture, next(_boxes(inner)))
        frame = {
            "label": _escaped([text.shorten(relative(path, cluster.path))]),
            "tooltip": _escaped([path]),
            "fontsize": "12",
            "color": FRAME,
            "style": "rounded",
            "bgcolor": SHADE,
            "labeljust": "l",
            "margin": "8",
        }
        with dot.subgraph(name=f"cluster {name} in {path.count('.')}", graph_attr=frame) as sub:
            _draw_cluster(sub, picture, inner)


def _draw_link(dot: graphviz.Digraph, picture: Picture, link: Link) -> None:
    first = link.edges[0].row
    name = f"edge-{first.producer}-{first.output}"
    tail, head = (picture.box_of[place] for place in (link.producer, link.consumer))
    start = _name(picture, tail)
    if picture.column_of[tail] != picture.column_of[head]:
        start = f"{name} from"
        dot.node(start, label=_escaped([f"from {_number(picture, link.producer)}"]), **CONNECTOR)
        dot.edge(f"column {picture.column_of[head]}", start, style="invis", weight="0")
    dot.edge(start, _name(picture, head), id=name, **_link_look(picture, [link]))


def _draw_onward(dot: graphviz.Digraph, picture: Picture) -> None:
    """Below a box, the numbers of what it feeds in other columns."""
    onward: defaultdict[int, list[Link]] = defaultdict(list)
    for link in picture.links:
        tail, head = (picture.box_of[place] for place in (link.producer, link.consumer))
        if picture.column_of[tail] != picture.column_of[head]:
            onward[tail].append(link)
    for tail, links in onward.items():
        said = [_number(picture, link.consumer) for link in links]
        more = f" and {len(said) - MOST_ONWARD:,} more" if len(said) > MOST_ONWARD else ""
        name = f"{_name(picture, tail)} to"
        dot.node(name, label=_escaped([f"to {', '.join(said[:MOST_ONWARD])}{more}"]), **CONNECTOR)
        dot.edge(_name(picture, tail), name, **_link_look(picture, links))


def _link_look(picture: Picture, links: Sequence[Link]) -> dict[str, str]:
    ends = [[picture.items[link.producer], picture.items[link.consumer]] for link in links]
    alarming = any(all(map(facts.has_nonfinite, pair)) for pair in ends)
    unused = all(not all(map(facts.is_executed, pair)) for pair in ends)
    about = [line for link in links for line in facts.about_link(link, picture.items)]
    if len(about) > facts.MOST_EDGES:
        about[facts.MOST_EDGES :] = [f"and {len(about) - facts.MOST_EDGES:,} more"]
    return {
        "xlabel": _slots(picture, links[0]) if len(links) == 1 else "",
        "tooltip": _escaped(about),
        **({"color": ALARM, "penwidth": "2"} if alarming else {}),
        **({"style": "dashed"} if unused else {}),
    }


def _number(picture: Picture, item: int) -> str:
    rows = [node.row for node in picture.items[item].nodes]
    return facts.numbers(rows) or text.shorten(rows[0].short_name)


def _boxes(cluster: Cluster) -> Iterator[int]:
    yield from cluster.boxes
    for inner in cluster.clusters:
        yield from _boxes(inner)


def _name(picture: Picture, box: int) -> str:
    return f"box {picture.items[picture.boxes[box].lines[0].item].index}"


def _slots(picture: Picture, link: Link) -> str:
    """Which input a gradient arrives at, where the consumer has several."""
    consumer = picture.items[link.consumer]
    if len(link.edges) > 1:
        return f"{len(link.edges):,} edges"
    several = consumer.kind is Kind.NODE and consumer.nodes[0].row.num_inputs > 1
    return f"input {link.edges[0].row.slot}" if several else ""


def _escaped(lines: Iterable[str]) -> str:
    """Lines as the text of an attribute, where the letter n after a backslash ends a line."""
    said: str = graphviz.nohtml("\\n".join(map(text.in_attribute, lines)))
    return said
