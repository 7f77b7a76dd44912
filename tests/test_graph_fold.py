"""Folding: nothing is lost, the budget is kept, nothing points backwards, deep graphs are fine."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agviz.graph.fold import fold, longest_repetition
from agviz.graph.items import ItemKind
from agviz.graph.picture import compose
from agviz.traces.rows import NodeStatus
from tests.graph_rows import Rows, block, blocks

if TYPE_CHECKING:
    from random import Random

    from agviz.graph.fold import Folded
    from agviz.graph.model import TaskGraph


def assert_is_whole(graph: TaskGraph, folded: Folded) -> None:
    """Every node in one item, every edge in a link or within an item, links lead onwards."""
    places = {n.row.index: i for i, item in enumerate(folded.items) for n in item.nodes}
    drawn = Counter(node.row.index for item in folded.items for node in item.nodes)
    assert drawn == Counter(node.row.index for node in graph.nodes)
    across = [e for e in graph.edges if places[e.row.producer] != places[e.row.consumer]]
    assert Counter(across) == Counter(edge for link in folded.links for edge in link.edges)
    assert all(link.producer < link.consumer for link in folded.links)


@given(st.randoms(use_true_random=False), st.integers(1, 60), st.integers(1, 60))
def test_nothing_is_lost_and_the_budget_is_kept(random: Random, size: int, budget: int) -> None:
    modules = [None, "a", "a.b", "a.0", "a.1", "a.1.c", "d.e.f"]
    rows = Rows()
    for index in range(size):
        fed_by = {random.randrange(index) for _ in range(random.randint(0, 2))} if index else set()
        rows.node(random.choice("XYZ"), *sorted(fed_by), module=random.choice(modules))
    graph = rows.graph()
    folded = fold(graph, budget)
    assert_is_whole(graph, folded)
    assert len(folded.items) <= budget
    assert bool(folded.notes) == (len(graph.nodes) > budget)


def test_a_graph_within_its_budget_is_drawn_whole() -> None:
    graph = blocks(3).graph()
    folded = fold(graph, len(graph.nodes))
    assert {item.kind for item in folded.items} == {ItemKind.NODE}
    assert folded.notes == ()


def test_equal_layers_are_folded_into_one_and_counted() -> None:
    graph = blocks(12).graph()
    folded = fold(graph, len(graph.nodes) - 1)
    assert_is_whole(graph, folded)
    (repeated,) = [item for item in folded.items if item.kind is ItemKind.REPEAT]
    assert (repeated.title, repeated.repeats) == ("blocks.10 … blocks.0", 11)
    shown = {item.module for item in folded.items if item.kind is ItemKind.NODE}
    assert {module.split(".")[1] for module in shown if module} == {"11"}
    assert folded.notes == ("blocks.10 … blocks.0: 11 equal blocks of 7 nodes drawn as one",)


def test_time_steps_in_one_module_are_folded_too() -> None:
    rows = Rows()
    last = rows.node("SumBackward0")
    for _ in range(50):
        tanh = rows.node("TanhBackward0", last, module="cell")
        add = rows.node("AddBackward0", tanh, module="cell")
        rows.node("TBackward0", add, module="cell")
        last = rows.node("AddmmBackward0", add, module="cell")
    folded = fold(rows.graph(), 100)
    (repeated,) = [item for item in folded.items if item.kind is ItemKind.REPEAT]
    assert (repeated.repeats, len(repeated.nodes)) == (49, 196)


def test_the_node_that_failed_stays_visible_among_equal_layers() -> None:
    rows = Rows()
    last = rows.node("MeanBackward0")
    for number in reversed(range(12)):
        if number == 5:
            last = rows.node("AddBackward0", last, status=NodeStatus.FAILED)
        last = block(rows, f"blocks.{number}", last)
    (failed,) = [row.index for row in rows.nodes if row.status is NodeStatus.FAILED]
    folded = fold(rows.graph(), 30)
    assert [item.kind for item in folded.items if item.index == failed] == [ItemKind.NODE]
    assert len(folded.items) <= 30


def test_the_first_nan_stays_visible_as_long_as_there_is_room() -> None:
    graph = blocks_with_nan(6)
    folded = fold(graph, 5)
    assert graph.first_nonfinite is not None
    assert [i.kind for i in folded.items if i.index == graph.first_nonfinite] == [ItemKind.NODE]
    assert_is_whole(graph, folded)


def blocks_with_nan(at: int) -> TaskGraph:
    rows = Rows()
    last = rows.node("MeanBackward0")
    for number in reversed(range(12)):
        last = block(rows, f"blocks.{number}", last, nan=3 if number <= at else 0)
    return rows.graph()


def test_modules_are_folded_from_the_inside_where_nothing_repeats() -> None:
    rows = Rows()
    last = rows.node("SumBackward0")
    for part in ("encoder.left", "encoder.right", "decoder.left"):
        for name in "PQRS"[: 3 + len(part) % 2]:
            last = rows.node(f"{name}{part}", last, module=part)
            rows.node(f"Side{name}{part}", last, module=part)
            rows.node(f"Other{name}{part}", last, rows.node("X" + part, last, module=part))
    folded = fold(rows.graph(), 20)
    assert_is_whole(rows.graph(), folded)
    assert len(folded.items) <= 20


@pytest.mark.parametrize("length", [5_000, pytest.param(200_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("names", [("A", "B"), None], ids=["alternating", "irregular"])
def test_a_long_chain_needs_no_recursion(names: tuple[str, ...] | None, length: int) -> None:
    rows = Rows()
    for index in range(length):
        name = names[index % 2] if names else f"Op{index * 7919 % 37}"
        rows.node(name, *([index - 1] if index else []))
    graph = rows.graph()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 60)
    try:
        picture = compose(graph)
    finally:
        sys.setrecursionlimit(limit)
    assert sum(len(item.nodes) for item in picture.items) == length
    assert len(picture.items) <= 400


def test_ten_thousand_equal_branches_are_one_item() -> None:
    rows = Rows()
    stack = rows.node("StackBackward0")
    for index in range(10_000):
        rows.leaf(f"w{index}", rows.node("MulBackward0", stack))
    folded = fold(rows.graph())
    assert [(item.repeats, len(item.nodes)) for item in folded.items][-1] == (9_999, 9_999)


@given(
    st.lists(st.sampled_from("abc"), max_size=8),
    st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=6),
    st.integers(3, 9),
    st.lists(st.sampled_from("abc"), max_size=8),
)
def test_a_repetition_that_is_found_is_there_and_saves_as_much_as_the_planted_one(
    before: list[str], unit: list[str], count: int, after: list[str]
) -> None:
    looks = [*before, *unit * count, *after]
    found = longest_repetition(looks, [None] * len(looks))
    if found is not None:
        end = found.start + found.period * found.count
        block = looks[found.start : found.start + found.period]
        assert found.count >= 3
        assert looks[found.start : end] == block * found.count
    if len(set(unit)) == len(unit) and not set(unit) & {*before, *after}:
        assert found is not None
        assert found.saved >= (count - 1) * len(unit) - 1
