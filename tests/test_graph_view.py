"""Views of recorded passes: parts, moments, differences, and what nodes and edges are marked with.

The trace itself, asked another way, is the oracle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import agviz
import agviz_engine
from agviz.analysis.origins import OriginKind as Origin
from agviz.errors import AgvizError
from agviz.graph.critical import critical_path
from agviz.graph.model import Differs
from agviz.graph.picture import compose
from agviz.graph.reading import read_view
from agviz.graph.view import By, FoldMode, GraphView
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import EdgeRow, NodeStatus
from tests.graph_rows import Rows, blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    from agviz.graph.model import Node, TaskGraph
    from agviz.record.capture_level import CaptureLevel


def record_two_layers(path: Path, **more: Any) -> None:
    """Linear, Tanh, Linear."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    with agviz.trace(model, path, **more):
        model(torch.ones(3, 4)).sum().backward()


def record(path: Path, program: Callable[[], object], **more: Any) -> None:
    torch.manual_seed(0)
    with agviz.trace(path=path, **more):
        program()


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    """Two layers."""
    record_two_layers(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as opened:
        yield opened


def named(graph: TaskGraph) -> list[str]:
    return [node.row.short_name for node in graph.nodes]


def node_of(graph: TaskGraph, name: str) -> Node:
    (found,) = [node for node in graph.nodes if node.row.short_name == name]
    return found


def test_a_neighbourhood_has_what_is_so_many_edges_away(trace: Trace) -> None:
    whole = read_view(trace, GraphView())
    centre = node_of(whole, "TanhBackward0")
    links = nx.Graph([(edge.row.producer, edge.row.consumer) for edge in whole.edges])
    for depth in range(4):
        expected = nx.single_source_shortest_path_length(links, centre.row.index, depth)
        for wanted in ("TanhBackward0", centre.row.order, str(centre.row.order)):
            part = read_view(trace, GraphView(around=wanted, depth=depth))
            assert {node.row.index for node in part.nodes} == set(expected)
    part = read_view(trace, GraphView(around="TanhBackward0", depth=1))
    assert named(part) == ["AddmmBackward0", "TanhBackward0", "AddmmBackward0"]
    assert [part.cut.get(node.row.index) for node in part.nodes] == [(1, 1), None, (0, 1)]
    assert part.notes == ("1 edge around 6 TanhBackward0: 5 of 10 nodes",)


def test_the_way_to_a_parameter_has_the_ancestors_of_its_leaf(trace: Trace) -> None:
    whole = read_view(trace, GraphView())
    part = read_view(trace, GraphView(to="0.weight"))
    links = nx.DiGraph([(edge.producer, edge.consumer) for edge in trace.edges(whole.task.id)])
    (leaf,) = [n.index for n in trace.nodes(whole.task.id) if n.parameter == "0.weight"]
    assert {node.row.index for node in part.nodes} == nx.ancestors(links, leaf)
    assert [leaf.row.parameter for node in part.nodes for leaf in node.leaves] == ["0.weight"]


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ({"around": "TahnBackward0"}, "no node 'TahnBackward0'; there is TanhBackward0"),
        ({"around": 99}, "No node of this graph was number 99 to run: 10 ran"),
        ({"to": "0.weigth"}, "No gradient comes to '0.weigth' in this graph; there is 0.weight"),
        ({"at": 10**9}, "came after graph task"),
        ({"at": 0, "graph_task": 0}, "came before graph task"),
        ({"budget": 0}, "0 nodes can't be drawn"),
        ({"depth": -1}, "-1 is no number of edges"),
    ],
)
def test_what_is_not_there_is_one_sentence(trace: Trace, view: dict[str, Any], said: str) -> None:
    if "graph_task" in view:
        view = view | {"graph_task": trace.graph_tasks[0].id}
    with pytest.raises(AgvizError) as raised:
        read_view(trace, GraphView(**view))
    assert said in str(raised.value)


def test_a_moment_is_what_the_replay_says(trace: Trace) -> None:
    task = trace.graph_tasks[0].id
    count = trace.event_count(task)
    seen: Counter[NodeStatus] = Counter()
    turns = {row.node: str(row.order) for row in trace.executions(task)}
    for position, event in enumerate(trace.events(task, 0, count), start=1):
        graph = read_view(trace, GraphView(at=event.seq))
        state = trace.state_at(task, position)
        rows = [row for node in graph.nodes for row in (node.row, *(x.row for x in node.leaves))]
        for row in rows:
            status = state.status(task, row.index) if state.statuses(task) else NodeStatus.WAITING
            assert row.status is status
            assert (row.order is not None) == (status in {NodeStatus.DONE, NodeStatus.RUNNING})
            assert graph.turn(row) == turns[row.index]
            seen[status] += 1
        assert graph.moment is not None
        assert graph.moment.seq == event.seq
        assert sum(q.tasks or 0 for q in graph.moment.queues) == sum(
            len(q.tasks) for q in state.queues()
        )
        assert dict(graph.moment.waiting) == {
            node: sum(slots.values()) for node, slots in state.buffers(task).items()
        }
    assert {NodeStatus.WAITING, NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.DONE} <= set(seen)


def test_groups_are_modules_threads_or_none() -> None:
    rows = blocks(1, thread=1)
    graph = rows.graph()
    by = {each: compose(graph, 400, FoldMode.AUTO, each) for each in By}
    assert {item.module for item in by[By.EXECUTION].items} == {None}
    assert {item.module for item in by[By.DEVICE].items} == {"caller", "device 0"}
    assert "blocks.0.norm" in {item.module for item in by[By.MODULE].items}
    orders = [node.row.order for item in by[By.EXECUTION].items for node in item.nodes]
    assert orders == sorted(orders, key=lambda order: order or 0)


def test_a_thread_that_gradients_come_back_to_is_framed_once_for_each_stay() -> None:
    rows = Rows()
    last = rows.node("SumBackward0")
    for thread in (1, 1, 2, 2, 1, 1):
        last = rows.node("MulBackward0", last, rows.node("AddBackward0", last, thread=thread))
        rows.nodes[last] = replace(rows.nodes[last], thread=thread)
    (column,) = compose(rows.graph(), by=By.DEVICE).columns
    framed = [cluster.path for cluster in column.clusters]
    assert framed == ["device 0", "device 1", "device 0, stay 2"]


def test_repeats_and_chains_are_folded_though_there_is_room() -> None:
    graph = blocks(12).graph()
    items = {fold: compose(graph, 400, fold).items for fold in FoldMode}
    assert max(item.repeats for item in items[FoldMode.AUTO]) == 1
    assert max(item.repeats for item in items[FoldMode.REPEATS]) == 11
    rows = Rows()
    last = rows.node("SumBackward0")
    for name in "ABCDEFGH":
        last = rows.node(name, last)
    row = rows.graph()
    assert [len(compose(row, 400, fold).items) for fold in FoldMode] == [9, 9, 1]


def record_networks(tmp_path: Path, *depths: int) -> list[Path]:
    paths = []
    for number, depth in enumerate(depths):
        torch.manual_seed(0)
        layers = [nn.Linear(4, 4) for _ in range(depth)]
        model = nn.Sequential(*layers, nn.Tanh())
        path = tmp_path / f"{number}.agviz"
        with agviz.trace(model, path):
            model(torch.ones(3, 4)).sum().backward()
        paths.append(path)
    return paths


def test_a_recording_laid_over_itself_differs_nowhere(tmp_path: Path) -> None:
    (path,) = record_networks(tmp_path, 3)
    with Trace.open(path) as trace, Trace.open(path) as other:
        plain, graph = read_view(trace, GraphView()), read_view(trace, GraphView(), other)
    assert graph.difference is not None
    assert (dict(graph.difference.nodes), dict(graph.difference.edges)) == ({}, {})
    assert graph.nodes == plain.nodes


def test_what_only_one_recording_has_is_in_the_graph_of_both(tmp_path: Path) -> None:
    small, large = record_networks(tmp_path, 2, 3)
    with Trace.open(small) as a, Trace.open(large) as b:
        grown, shrunk = read_view(a, GraphView(), b), read_view(b, GraphView(), a)
    for graph, kind in ((grown, Differs.ONLY_THERE), (shrunk, Differs.ONLY_HERE)):
        assert graph.difference is not None
        only = [index for index, differs in graph.difference.nodes.items() if differs is kind]
        assert len(only) == 4  # AddmmBackward0, TBackward0 and their two leaves
        drawn = {row.index for n in graph.nodes for row in (n.row, *(x.row for x in n.leaves))}
        assert set(only) <= drawn
        assert kind in graph.difference.edges.values()
        assert Differs.FIRST in graph.difference.nodes.values()
        assert graph.difference.summary


def double(x: Tensor) -> None:
    x.clone().mul(1e4).sum().backward()


def dead(x: Tensor) -> None:
    (-x.abs() - 1).relu().exp().sum().backward()


def root_of_zero(x: Tensor) -> None:
    (x - x).sqrt().sin().sum().backward()


def test_exploding_zero_and_nonfinite_gradients_are_marked(tmp_path: Path) -> None:
    for program in (double, dead, root_of_zero):
        x = torch.arange(1.0, 4.0, requires_grad=True)
        record(tmp_path / f"{program.__name__}.agviz", partial(program, x))

    def graph(program: Callable[[Tensor], None]) -> TaskGraph:
        with Trace.open(tmp_path / f"{program.__name__}.agviz") as trace:
            return read_view(trace, GraphView())

    found = graph(double)
    assert found.marks.growth == {node_of(found, "MulBackward0").row.index: pytest.approx(1e4)}
    assert not found.marks.zero
    found = graph(dead)
    relu = node_of(found, "ReluBackward0").row.index
    assert found.marks.zero == {relu}
    assert {producer for producer, _ in found.marks.zeros} > {relu}
    found = graph(root_of_zero)
    sqrt = node_of(found, "SqrtBackward0").row.index
    assert found.first_nonfinite == sqrt
    assert found.marks.origins == {sqrt: Origin.NODE}
    assert {producer for producer, _ in found.marks.nonfinite} >= {sqrt}
    assert node_of(found, "SinBackward0").row.index not in dict(found.marks.nonfinite)


def test_without_values_the_path_of_a_nan_is_known_all_the_same(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    levels: tuple[CaptureLevel, ...] = ("none", "health")
    paths = [tmp_path / f"{values}.agviz" for values in levels]
    for path, values in zip(paths, levels, strict=True):
        with (
            Recorder(path, values=values) as recorder,
            agviz_engine.installed(recorder, nonfinite_check=True),
        ):
            root_of_zero(x)
    edges = []
    for path in paths:
        with Trace.open(path) as trace:
            edges.append(read_view(trace, GraphView()).marks.nonfinite)
    assert edges[0] == edges[1] != frozenset()


def test_hooks_dtypes_and_saved_tensors_are_told(tmp_path: Path) -> None:
    def halved(gradient: Tensor) -> Tensor:
        return gradient / 2

    def program() -> None:
        x = torch.ones(3, requires_grad=True)
        y = x.sin()
        y.register_hook(halved)
        y.half().exp().sum().backward()

    record(tmp_path / "t.agviz", program)
    with Trace.open(tmp_path / "t.agviz") as trace:
        graph = read_view(trace, GraphView(saved=True))
    ((node, hooks),) = graph.marks.hooks.items()
    assert node == node_of(graph, "SinBackward0").row.index
    assert [(hook.kind, hook.calls, hook.changed) for hook in hooks] == [("tensor_pre", 1, 1)]
    assert "halved" in hooks[0].name
    received = {n.row.short_name: graph.marks.received[n.row.index] for n in graph.nodes}
    assert received["SinBackward0"] == "float32"
    assert received["ExpBackward0"] == "float16"
    saved = graph.marks.saved[node_of(graph, "ExpBackward0").row.index]
    assert [(row.name, row.shape, row.dtype) for row in saved] == [("result", (3,), "float16")]


@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_no_path_takes_longer_than_the_critical_one(random: Random, size: int) -> None:
    edges = [
        EdgeRow(random.randrange(consumer), 0, consumer, 0)
        for consumer in range(1, size)
        for _ in range(random.randint(0, 3))
    ]
    times = {index: random.randint(0, 50) for index in range(size) if random.random() < 0.9}
    found = critical_path(range(size), edges, times)
    links = nx.DiGraph()
    links.add_nodes_from(times)
    links.add_edges_from((e.producer, e.consumer) for e in edges if {*e[::2]} <= times.keys())
    longest = max(
        (
            sum(times[index] for index in path)
            for start in times
            for end in times
            for path in ([[start]] if start == end else nx.all_simple_paths(links, start, end))
        ),
        default=0,
    )
    assert found.total_ns == longest == sum(times[index] for index in found.nodes)
    assert found.members == frozenset(found.nodes)
    assert all(links.has_edge(*pair) for pair in zip(found.nodes, found.nodes[1:], strict=False))


def test_the_critical_path_of_a_recording_is_no_longer_than_the_pass(trace: Trace) -> None:
    graph = read_view(trace, GraphView())
    task = graph.task
    assert task.end_ns is not None
    assert 0 < graph.marks.critical.total_ns <= task.end_ns - task.begin_ns
    assert graph.marks.critical.nodes[0] == 0


def test_a_module_that_is_left_and_entered_again_has_no_frame() -> None:
    rows = Rows()
    last = rows.node("SumBackward0")
    for _ in range(3):
        for name, module in (("A", "cell"), ("B", "cell"), ("C", "head"), ("D", "head")):
            last = rows.node(name, last, module=module)
    last = rows.node("E", last, module="once")
    rows.node("F", last, module="once")
    (column,) = compose(rows.graph()).columns
    assert [cluster.path for cluster in column.clusters] == ["once"]
