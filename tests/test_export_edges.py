"""Every edge of torch's graph is in the picture, and no other: counted in the DOT by pygraphviz."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pygraphviz
import pytest
import torch

import agviz
from agviz import drawing
from agviz.export.dot import draw_picture
from agviz.export.labels import MOST_LEAVES
from agviz.graph.picture import TOO_SMALL
from agviz.live_graph import root_nodes, walk
from screenshots.scenes import STEPS
from tests import svg_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.export.digraph import Picture
    from agviz.export.look import Look
    from agviz.graph.picture import GraphLayout

LARGE = {"chain-100000", "wide-50000"}
"""Of which all but a few nodes are folded into one; they take a minute."""


def edges_of_torch(loss: torch.Tensor) -> Iterator[tuple[int, int, int, int]]:
    """Producer, output, consumer and slot, by the places of nodes in agviz's walk."""
    refs = walk(root_nodes([loss]))
    place = {ref.node: ref.index for ref in refs}
    for ref in refs:
        following: Any = ref.node.next_functions
        for output, (consumer, slot) in enumerate(following):
            if consumer is not None:
                yield ref.index, output, place[consumer], slot


class Parsed:
    """What pygraphviz finds in the DOT of a picture."""

    def __init__(self, source: str) -> None:
        self.graph = pygraphviz.AGraph(string=source)
        self.box = {str(node): node.attr["id"] for node in self.graph.nodes()}
        self.lines = {
            node.attr["id"]: re.findall(r'ID="(node-[\w-]+)"', node.attr["label"] or "")
            for node in self.graph.nodes()
        }
        self.edges = Counter[tuple[str, str]]()
        self.ids = set[str]()
        for edge in self.graph.edges_iter():
            name = edge.attr["id"] or ""
            if re.fullmatch(r"edge-\d+-\d+", name):
                self.ids.add(name)
                self.edges[self.box[edge[0]] or name, self.box[edge[1]]] += 1


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", sorted(STEPS.keys() - LARGE))
@pytest.mark.parametrize("budget", [None, 10_000])
def test_no_edge_is_missing_or_invented(
    name: str, budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    step = STEPS[name]()
    layouts: list[GraphLayout] = []

    def drawn(layout: GraphLayout, look: Look) -> Picture:
        layouts.append(layout)
        return draw_picture(layout, look)

    monkeypatch.setattr(drawing, "draw_picture", drawn)
    found = Parsed(agviz.draw(step.loss, step.model, budget=budget).source)
    (picture,) = layouts
    item_of = {node.row.index: at for at, item in enumerate(picture.items) for node in item.nodes}
    leaves = {leaf.row.index for node in picture.graph.nodes for leaf in node.leaves}

    def box_of(node: int) -> str:
        box = picture.boxes[picture.box_of[item_of[node]]]
        return f"box-{picture.items[box.lines[0].item].index}"

    wanted = set[tuple[int, int]]()
    ids = dict[tuple[int, int], set[str]]()
    used = Counter[int]()
    for producer, output, consumer, _ in edges_of_torch(step.loss):
        if consumer in leaves:
            used[producer] += 1
            continue
        ends = item_of[producer], item_of[consumer]
        if picture.box_of[ends[0]] != picture.box_of[ends[1]]:
            wanted.add(ends)
            ids.setdefault(ends, set()).add(f"edge-{producer}-{output}")
    # One arrow for all edges between two lines, which is named by one of them.
    assert sum(found.edges.values()) == len(wanted) == len(found.ids)
    for ends in wanted:
        (own,) = ids[ends] & found.ids
        tail, head = (box_of(picture.items[end].index) for end in ends)
        across = (
            picture.column_of[picture.box_of[ends[0]]] != picture.column_of[picture.box_of[ends[1]]]
        )
        assert found.edges[own if across else tail, head] >= 1
    # A parameter is a line below each node that feeds it.
    for item in picture.items:
        if len(item.nodes) == 1:
            lines = found.lines[box_of(item.index)]
            below = item.nodes[0].leaves
            assert len(below) == used[item.index]
            for leaf in below[:MOST_LEAVES]:
                assert f"node-{leaf.row.index}-use-{leaf.use}" in lines


@pytest.mark.parametrize("name", sorted(STEPS.keys() - LARGE))
def test_the_text_can_be_read(name: str) -> None:
    torch.manual_seed(0)
    step = STEPS[name]()
    svg = agviz.draw(step.loss, step.model).svg().encode()
    root = svg_reader.parse(svg)
    width = float(root.get("viewBox", "").split()[2])
    sizes = [float(e.get("font-size", "")) for e in root.iter() if e.tag.endswith("}text")]
    assert min(sizes) * 1440 / width >= 8


def test_a_budget_draws_what_can_not_be_read() -> None:
    torch.manual_seed(0)
    step = STEPS["gpt-12-layers"]()
    folded, whole = (agviz.draw(step.loss, step.model, budget=budget) for budget in (None, 400))
    assert TOO_SMALL in folded.notes
    assert whole.notes == ()
    assert len(whole.source) > 3 * len(folded.source)
