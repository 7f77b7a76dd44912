"""The graph panel's plain data: outline, columns, lanes and folds, held against the whole graph."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import agviz
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.tui.columns import OutlineColumns
from agviz.tui.folding import Folding
from agviz.tui.lanes import AWAY, MORE, Lanes, draw
from agviz_engine import graph_task
from agviz_engine.events import GradientAccumulated
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
from tests.slow_cases import slow_but
from tests.tui_support import LAYERS, NODES, record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def read(path: Path, limit: int = 10_000) -> OutlineColumns:
    """All of the first graph task."""
    with Trace.open(path) as trace:
        outline = trace.outline(0)
        columns = OutlineColumns(outline.nodes)
        while not columns.is_complete:
            columns.add(outline.more(limit))
    return columns


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("trace") / "nan.agviz", nan_at=7)


def simulated(path: Path, seed: int, *, fail: bool) -> Path:
    rng = Random(seed)
    registry = Registry()
    nodes = random_graph(rng, 40, devices=3)
    with Recorder(path) as recorder:
        registry.add(recorder)
        fail_at = rng.randrange(len(nodes)) if fail else None
        Simulator(registry, rng, devices=3).backward(nodes, fail_at=fail_at)
    return path


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 1_000])
@pytest.mark.parametrize("seed", slow_but({"0"}, range(4)))
def test_pieces_of_any_size_make_what_the_trace_says(
    tmp_path: Path, seed: int, limit: int, *, fail: bool
) -> None:
    path = simulated(tmp_path / "t.agviz", seed, fail=fail)
    columns = read(path, limit)
    with Trace.open(path) as trace:
        nodes, edges, executions = trace.nodes(0), trace.edges(0), trace.executions(0)
        nonfinite = [(row.seq, row.node) for row in trace.nonfinite(0)]
        outline = trace.outline(0)
        while not outline.more(limit).is_last:
            pass
        for node in nodes:
            into, out = trace.edges_into(0, node.index), trace.edges_from(0, node.index)
            for most in (0, 1, 2, 10_000):
                assert outline.edges_into(node.index, most) == (into[:most], len(into))
                assert trace.edges_from(0, node.index, most) == out[:most]
                with Trace.open(path) as fresh:  # which has not read all nodes
                    alone = fresh.node(0, node.index, most_outputs=most)
                last = out[:most][-1].output + 1 if out[:most] else 0
                assert alone == replace(node, output_shapes=node.output_shapes[:last])
            outputs = max((edge.output + 1 for edge in out), default=0)
            assert trace.fan_out(0, node.index) == (len(out), outputs)
    assert columns.nodes == len(columns) == len(nodes)
    for order, row in enumerate(executions, start=1):
        told = columns.execution(order)
        assert tuple(told) == (
            *(row.order, row.node, row.thread, row.start_ns, row.end_ns, row.status, row.seq),
        )
    for node in nodes:
        facts = columns.facts(node.index)
        assert facts.short_name == node.short_name
        assert facts.order == node.order
        assert facts.parameter == (node.parameter or "")
        assert facts.module == (node.module or "")
        assert facts.duration_ns == (node.duration_ns if node.order else None)
        assert facts.queue == node.queue
        assert facts.dependencies == node.dependencies
        of_node = [edge.consumer for edge in edges if edge.producer == node.index]
        assert list(columns.consumers(node.index)) == of_node
        row_of = columns.row_of(node.index)
        assert row_of is not None
        assert columns.node_at(row_of) == node.index
    assert columns.nonfinite == nonfinite


@pytest.mark.parametrize("seed", range(4))
def test_a_nodes_story_is_what_the_trace_tells(tmp_path: Path, seed: int) -> None:
    with Trace.open(simulated(tmp_path / "t.agviz", seed, fail=False)) as trace:
        outline = trace.outline(0)
        for node in range(outline.nodes):
            everything = trace.story(0, node)
            story = outline.story(node)
            arrived = [
                event
                for event in everything
                if isinstance(event, GradientAccumulated) and event.node == node
            ]
            assert sum(slot.number for slot in story.arrived) == len(arrived)
            for slot in story.arrived:
                last = [event for event in arrived if event.slot == slot.slot][-1]
                assert (slot.nbytes, slot.last_seq) == (last.nbytes, last.seq)
            given = [event for event in everything if isinstance(event, GradientAccumulated)]
            given = [event for event in given if event.producer == node]
            assert [e for e in story.events if isinstance(e, GradientAccumulated)] == given
            told = [event for event in everything if event in story.events]
            assert told == sorted(story.events)


graphs = st.integers(2, 14).flatmap(
    lambda size: st.lists(
        st.sets(st.integers(0, size - 1), max_size=4), min_size=size, max_size=size
    )
)


def forward_only(graph: Sequence[set[int]]) -> list[list[int]]:
    return [sorted(n for n in after if n > node) for node, after in enumerate(graph)]


@given(graphs)
@settings(max_examples=200)
def test_every_edge_is_a_lane_from_its_producer_to_its_consumer(graph: list[set[int]]) -> None:
    edges = forward_only(graph)
    lanes = Lanes()
    for node, consumers in enumerate(edges):
        lanes.add(node, consumers)
    forks = [lanes.at(row, row + 1) for row in range(len(edges))]
    for node, consumers in enumerate(edges):
        waited_for = {n for before in range(node) for n in edges[before] if n >= node}
        assert forks[node].before.bit_count() == len(waited_for)
        if node in waited_for:
            assert forks[node].before >> forks[node].column & 1
        for consumer in consumers:
            # One lane that the node touches is there on every row until the consumer's.
            reaching = forks[node].touched & forks[node].after
            for row in range(node + 1, consumer + 1):
                reaching &= forks[row].before
            assert reaching >> forks[consumer].column & 1
    assert forks[-1].after == 0


@given(graphs, st.integers(1, 6))
@settings(max_examples=200)
def test_a_row_of_lanes_has_its_width_and_joins_what_it_should(
    graph: list[set[int]], width: int
) -> None:
    edges = forward_only(graph)
    lanes = Lanes()
    for node, consumers in enumerate(edges):
        lanes.add(node, consumers)
    above, above_at = " " * 2 * width, -1
    for row in range(len(edges)):
        fork = lanes.at(row, row + 1)
        cells, at = draw(fork, width)
        assert len(cells) == 2 * width
        assert cells[at] == " "
        for cell in range(0, 2 * width, 2):
            comes = bool(fork.before >> (cell // 2) & 1)
            if cell != at:
                assert (cells[cell] in "│├┤╯╰┼") == comes
            if cell != above_at:
                assert (above[cell] in "│├┤╮╭┼") == comes
        if fork.widest > width:
            assert cells[-1] in {AWAY, MORE}
        above, above_at = cells, at


def test_many_lanes_are_counted_and_not_drawn() -> None:
    lanes = Lanes()
    lanes.add(0, range(1, 101))
    for node in range(1, 101):
        lanes.add(node, ())
    assert lanes.widest == 100
    cells, at = draw(lanes.at(0, 1), 4)
    assert (cells[at + 1 :], at) == ("─╮─╮─╮" + AWAY, 0)
    cells, _ = draw(lanes.at(99, 100), 4)
    assert cells[-1] == AWAY
    assert draw(lanes.at(100, 101), 4)[0].strip() in {"", AWAY}


def test_every_line_is_a_row_and_every_row_has_a_line(path: Path) -> None:
    folding = Folding(read(path))
    assert folding.lines == len(folding) == NODES
    rng = Random(0)
    for _ in range(60):
        place, fold = folding.at(rng.randrange(folding.lines))
        larger = [f for f in folding.levels(place) if fold is None or f.rows > fold.rows]
        if fold is not None and rng.random() < 0.5:
            folding.unfold(fold, folding.inside(fold))
        elif larger:
            folding.fold(larger[0])
        seen: list[int] = []
        for line in range(folding.lines):
            place, fold = folding.at(line)
            places = range(place, place + 1 if fold is None else fold.end)
            assert all(folding.line_of(each) == line for each in places)
            seen += places
        assert seen == list(range(NODES))


class Blocks(nn.Module):
    """Equal blocks, one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(LAYERS)]
        self.layers = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_groups_grow_from_a_module_to_what_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_task, "_next_id", itertools.count().__next__)
    with agviz.trace(path=tmp_path / "blocks.agviz"):
        Blocks()(torch.randn(2, 4)).sum().backward()
    folding = Folding(read(tmp_path / "blocks.agviz"))
    places = range(len(folding))
    place = next(p for p in places if len(folding.levels(p)) > 2)
    levels = folding.levels(place)
    assert [level.title for level in levels] == [
        "layers.3.0",
        "layers.3",
        f"{LAYERS} \N{MULTIPLICATION SIGN} layers.{{3…0}}",
    ]
    assert [level.rows for level in levels] == [4, 5, 5 * LAYERS]
    inside = folding.inside(levels[-1])
    assert [fold.title for fold in inside] == [f"layers.{n}" for n in reversed(range(LAYERS))]


def test_fold_all_folds_each_module_and_chain(path: Path) -> None:
    columns = read(path)
    folding = Folding(columns)
    folding.fold_all()
    for fold in folding.folds:
        paths = {columns.path_of(folding.node(place)) for place in range(fold.start, fold.end)}
        assert len(paths) == 1
        for outside in (fold.start - 1, fold.end):
            if 0 <= outside < len(folding):
                assert columns.path_of(folding.node(outside)) not in paths
    of_thread = Folding(columns, list(columns.rows_of_thread(1, 0)))
    assert len(of_thread) == len(columns.by_thread[1])
    of_thread.fold_all()
    assert of_thread.lines < len(of_thread)
