"""The drawable graph: leaves become lines, producers come first, files may be damaged."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agviz.analysis.default_pass import default_pass
from agviz.errors import TraceError
from agviz.graph.model import read_graph, topological_order
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import EdgeRow, NodeStatus
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
from tests.graph_rows import Rows, linear

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.graph.model import TaskGraph


def leaves_by_node(graph: TaskGraph) -> dict[int, list[tuple[int, int, int]]]:
    return {
        node.row.index: [(leaf.row.index, leaf.use, leaf.uses) for leaf in node.leaves]
        for node in graph.nodes
    }


def test_an_accumulate_grad_becomes_a_line_of_the_node_that_feeds_it() -> None:
    rows = Rows()
    root = rows.node("SumBackward0")
    addmm = linear(rows, "head", root)
    graph = rows.graph()
    assert leaves_by_node(graph) == {root: [], addmm: [(2, 1, 1)], 3: [(4, 1, 1)]}
    assert [(edge.row.producer, edge.row.consumer) for edge in graph.edges] == [(0, 1), (1, 3)]
    assert graph.folded_leaves == 2


def test_a_shared_parameter_has_a_copy_for_each_use() -> None:
    rows = Rows()
    root = rows.node("SumBackward0")
    first, second = rows.node("MulBackward0", root), rows.node("MulBackward0", root)
    weight = rows.leaf("weight", first, second)
    assert leaves_by_node(rows.graph())[first] == [(weight, 1, 2)]
    assert leaves_by_node(rows.graph())[second] == [(weight, 2, 2)]
    assert rows.graph().folded_leaves == 1


def test_a_root_that_is_a_leaf_and_a_failed_leaf_stay_nodes() -> None:
    rows = Rows()
    alone = rows.leaf("alone")
    root = rows.node("SumBackward0")
    failed = rows.leaf("failed", root, status=NodeStatus.FAILED)
    assert leaves_by_node(rows.graph()) == {alone: [], root: [], failed: []}


def test_edges_that_meet_in_one_slot_are_counted() -> None:
    rows = Rows()
    root = rows.node("AddBackward0")
    left, right = rows.node("SinBackward0", root), rows.node("CosBackward0", root)
    rows.node("ExpBackward0", left, right)
    graph = rows.graph()
    assert [edge.meeting for edge in graph.edges] == [1, 1, 2, 2]
    assert graph.meeting == {3: 2}


def test_a_gradient_has_the_shape_that_its_consumer_received() -> None:
    rows = Rows()
    root = rows.node("SumBackward0", shape=())
    rows.node("ReluBackward0", root, shape=(5, 4))
    rows.node("SinBackward0", root, input_shapes=None)
    assert [edge.shape for edge in rows.graph().edges] == [(5, 4), None]


def test_lanes_are_the_caller_then_the_devices() -> None:
    rows = Rows()
    last = rows.node("SumBackward0", thread=2)
    rows.node("ReluBackward0", last, thread=0)
    names = {thread: (lane.position, lane.name) for thread, lane in rows.graph().lanes.items()}
    assert names == {0: (0, "caller"), 2: (1, "device 1")}


def test_an_edge_to_nowhere_is_left_out_and_a_ring_does_not_hang() -> None:
    rows = Rows()
    first = rows.node("AddBackward0")
    second = rows.node("MulBackward0", first)
    rows.edges += [EdgeRow(second, 0, first, 0), EdgeRow(first, 1, 99, 0), EdgeRow(-1, 0, first, 0)]
    graph = rows.graph()
    assert [node.row.index for node in graph.nodes] == [first, second]
    assert len(graph.edges) == 2


@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_producers_come_before_consumers(random: Random, size: int) -> None:
    edges = [
        EdgeRow(random.randrange(consumer), 0, consumer, 0)
        for consumer in range(1, size)
        for _ in range(random.randint(1, 3))
    ]
    shuffled = random.sample(range(size), size)
    edges = [EdgeRow(shuffled[e.producer], 0, shuffled[e.consumer], 0) for e in edges]
    order = topological_order(range(size), edges, [random.randrange(size) for _ in range(size)])
    assert Counter(order) == Counter(range(size))
    assert all(order.index(edge.producer) < order.index(edge.consumer) for edge in edges)


def record(path: Path, **last: Any) -> None:
    """Three graph tasks; the last but one is the largest, the last as the caller wants."""
    registry = Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(3))
        for size in (10, 30):
            simulator.backward(random_graph(simulator.rng, size))
        simulator.backward(random_graph(simulator.rng, 20), **last)


@pytest.mark.parametrize(
    ("last", "chosen"), [({}, 1), ({"nan_at": 0}, 2), ({"fail_at": 0}, 2)], ids=str
)
def test_the_graph_task_that_failed_or_has_a_nan_or_is_largest_is_chosen(
    tmp_path: Path, last: dict[str, int], chosen: int
) -> None:
    record(tmp_path / "t.agviz", **last)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert default_pass(trace) == chosen
        assert read_graph(trace).task.id == chosen
        assert read_graph(trace, 0).task.id == 0


def test_a_trace_without_a_graph_says_so(tmp_path: Path) -> None:
    Recorder(tmp_path / "t.agviz").close()
    with Trace.open(tmp_path / "t.agviz") as trace:
        with pytest.raises(TraceError, match="holds no backward pass to draw"):
            read_graph(trace)
        with pytest.raises(TraceError):
            read_graph(trace, 7)
