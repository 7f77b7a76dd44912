"""The picture: every item in one box, every link drawn once, columns that only lead onwards."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agviz.graph.picture import Cluster, GraphLayout, compose
from tests.graph_rows import Rows, block, blocks, linear

if TYPE_CHECKING:
    from random import Random


def boxes_of(cluster: Cluster) -> list[int]:
    return [*cluster.boxes, *(box for inner in cluster.clusters for box in boxes_of(inner))]


def names(picture: GraphLayout) -> list[list[tuple[int, str]]]:
    """For every box, its lines: indent and name."""
    return [
        [(line.indent, picture.items[line.item].nodes[0].row.short_name) for line in box.lines]
        for box in picture.boxes
    ]


@given(st.randoms(use_true_random=False), st.integers(1, 120))
def test_everything_is_drawn_once_and_columns_lead_onwards(random: Random, size: int) -> None:
    modules = [None, "a", "a.b", "a.0", "a.1", "a.1.c", "d.e.f"]
    rows = Rows()
    for index in range(size):
        near = range(max(0, index - 6), index)
        fed_by = {random.choice(near) for _ in range(random.randint(1, 2))} if index else set()
        rows.node(random.choice("XYZ"), *sorted(fed_by), module=random.choice(modules))
    picture = compose(rows.graph())

    lines = Counter(line.item for box in picture.boxes for line in box.lines)
    assert lines == Counter(range(len(picture.items)))
    assert Counter(box for column in picture.columns for box in boxes_of(column)) == Counter(
        range(len(picture.boxes))
    )
    within = [line.link for box in picture.boxes for line in box.lines if line.link is not None]
    edges = Counter(edge for link in [*within, *picture.links] for edge in link.edges)
    assert edges == Counter(picture.graph.edges)
    for link in picture.links:
        tail, head = picture.box_of[link.producer], picture.box_of[link.consumer]
        assert tail != head
        assert picture.column_of[tail] <= picture.column_of[head]


def test_a_side_branch_stands_below_the_node_that_feeds_it() -> None:
    rows = Rows()
    root = rows.node("SumBackward0")
    middle = linear(rows, "second", root)
    linear(rows, "first", rows.node("ReluBackward0", middle))
    assert names(compose(rows.graph())) == [
        [(0, "SumBackward0")],
        [(0, "AddmmBackward0"), (1, "TBackward0")],
        [(0, "ReluBackward0")],
        [(0, "AddmmBackward0"), (1, "TBackward0")],
    ]


def test_rows_of_a_large_graph_become_lines_of_one_box() -> None:
    rows = blocks(6)
    small, large = compose(blocks(2).graph()), compose(rows.graph())
    assert max(sum(not indent for indent, _ in box) for box in names(small)) == 1
    assert [name for _, name in names(large)[2]] == [
        "AddmmBackward0",
        "TBackward0",
        "ReluBackward0",
        "AddmmBackward0",
        "TBackward0",
    ]


def test_modules_with_several_boxes_are_framed_and_mere_containers_are_not() -> None:
    columns = compose(blocks(3).graph()).columns
    framed = [cluster.path for column in columns for cluster in column.clusters]
    assert framed == ["blocks.2", "blocks.1", "blocks.0"]


def test_a_tall_picture_gets_columns_that_begin_where_modules_do() -> None:
    picture = compose(blocks(12).graph())
    assert len(picture.columns) > 1
    tops = [min(boxes_of(column)) for column in picture.columns[1:]]
    first_names = [picture.items[picture.boxes[box].lines[0].item] for box in tops]
    assert [item.nodes[0].row.short_name for item in first_names] == ["AddBackward0"] * len(tops)


@pytest.mark.slow
def test_a_module_path_without_end_is_no_burden() -> None:
    rows = Rows()
    last = rows.node("SumBackward0")
    for index in range(60):
        module = f"m{index % 3}" + ".deeper" * 2_000
        rows.node("SinBackward0", last, module=module)
        last = rows.node("CosBackward0", last, module=module)
    assert len(compose(rows.graph(), 400).items) == 121
    assert len(compose(rows.graph(), 10).items) <= 10


def test_a_small_picture_has_one_column() -> None:
    rows = Rows()
    block(rows, "only", rows.node("SumBackward0"))
    assert len(compose(rows.graph()).columns) == 1
