"""What executions took, each by itself, and single nodes read without the others."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import agviz_engine
from agviz.cli.main import main
from agviz.errors import TraceError
from agviz.record.recorder import Recorder
from agviz.traces import schema
from agviz.traces.nodes import short_name
from agviz.traces.reader import Trace
from agviz_engine import events
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph

if TYPE_CHECKING:
    from pathlib import Path


def own_times(path: Path, graph_task: int | None) -> tuple[dict[str, int], dict[int, int]]:
    """By type, and by thread: each stretch of a thread's time belongs to its innermost node.

    From SQLite alone. The second counts what ran inside ``graph_task`` as well.
    """
    database = sqlite3.connect(path)
    rows = database.execute(
        "SELECT thread, t, event.graph_task, kind, event.node, text FROM event"
        " JOIN node ON node.graph_task = event.graph_task AND idx = event.node"
        " JOIN string ON string.id = node.name WHERE kind IN (6, 7, 26, 28) ORDER BY seq"
    ).fetchall()
    database.close()
    types, threads = Counter[str](), Counter[int]()
    for thread in {row[0] for row in rows}:
        inside: list[tuple[int, str]] = []
        before = 0
        for _, t, number, kind, _, name in (row for row in rows if row[0] == thread):
            if inside:
                innermost, title = inside[-1]
                if graph_task in {None, innermost}:
                    types[title] += t - before
                if graph_task is None or graph_task in {task for task, _ in inside}:
                    threads[thread] += t - before
            if kind == 26:
                inside.append((number, short_name(name)))
            else:
                assert inside.pop()[0] == number
            before = t
    return types, threads


def simulated(path: Path) -> None:
    registry = Registry()
    with Recorder(path) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(1))
        inner = random_graph(simulator.rng, 9)
        for _ in range(3):
            simulator.backward(random_graph(simulator.rng, 20), reentrant=inner)


def checkpointed(path: Path) -> None:
    weight = torch.randn(64, 64, requires_grad=True)

    def inner(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(
            lambda x: torch.tanh(x @ weight) @ weight, x, use_reentrant=True
        )
        return y

    with Recorder(path) as recorder, agviz_engine.installed(recorder):
        for _ in range(3):
            x = torch.randn(64, 64, requires_grad=True)
            checkpoint(lambda y: inner(y) @ weight, x, use_reentrant=True).sum().backward()


@pytest.mark.parametrize("record", [simulated, checkpointed])
def test_a_node_does_not_count_what_ran_inside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: object
) -> None:
    path = tmp_path / "t.agviz"
    assert callable(record)
    record(path)
    with Trace.open(path) as trace:
        outermost = next(task.id for task in trace.graph_tasks if task.parent < 0)
        for graph_task in (None, outermost):
            types, threads = own_times(path, graph_task)
            slowest = trace.slowest(10**6, graph_task).types
            assert {row.name: row.self_ns for row in slowest} == types
            assert [row.self_ns for row in slowest] == sorted(types.values(), reverse=True)
            busy = {row.thread: row.busy_ns for row in trace.thread_times(graph_task)}
            assert busy == threads
            total = sum(row.total_ns for row in slowest)
            if graph_task is None:
                assert total > sum(busy.values()) == sum(types.values())
    main(["summary", str(path), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert sum(row["self_ns"] for row in facts["slowest_types"]) <= sum(
        thread["busy_ns"] for thread in facts["threads"]
    )
    main(["summary", str(path)])
    table = capsys.readouterr().out.partition("Slowest types")[2].partition("Slowest nodes")[0]
    shares = [int(share) for share in re.findall(r"(\d+)%", table)]
    assert len(shares) > 3
    assert 90 <= sum(shares) <= 105  # each is rounded


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("nodes", [None, re.compile("Simulated[36]")])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_node_alone_is_the_one_among_all(
    tmp_path: Path, nodes: re.Pattern[str] | None, indexed: bool
) -> None:
    path = tmp_path / "t.agviz"
    registry = Registry()
    with Recorder(path, nodes=nodes) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(2), devices=2)
        inner = random_graph(simulator.rng, 12)
        outer = random_graph(simulator.rng, 30, 2)
        simulator.backward(outer, reentrant=inner, nan_at=3)
        simulator.backward(outer, fail_at=9)
    if not indexed:
        database = sqlite3.connect(path)
        for name in schema.INDEXES:
            database.execute(f"DROP INDEX {name}")
        database.execute(
            "UPDATE graph_task SET end_seq = NULL, end_t = NULL, error = 0, message = 0"
        )
        database.commit()
        database.close()
    with Trace.open(path) as all_of_them:
        for task in all_of_them.graph_tasks:
            for row in all_of_them.nodes(task.id):
                with Trace.open(path) as trace:
                    assert trace.node(task.id, row.index) == row
                    assert not trace._nodes()._nodes
                assert all_of_them.node(task.id, row.index) is row
    for number in (-1, 30, 2**63, -(2**70)):
        with Trace.open(path) as trace:
            with pytest.raises(TraceError, match=f"holds no node {number}; it has 30 nodes"):
                trace.node(0, number)
            with pytest.raises(TraceError, match=f"holds no graph task {number};"):
                trace.graph_task(number)


def test_the_real_engine_s_nodes_alone(tmp_path: Path) -> None:
    checkpointed(tmp_path / "t.agviz")
    with Trace.open(tmp_path / "t.agviz") as whole:
        for task in whole.graph_tasks:
            for row in whole.nodes(task.id):
                with Trace.open(tmp_path / "t.agviz") as trace:
                    assert trace.node(task.id, row.index) == row


def test_what_cannot_be_nested_adds_up_all_the_same() -> None:
    from agviz.traces.nodes import self_times
    from agviz.traces.rows import ExecutionRow, NodeStatus

    def row(start: int, end: int | None, order: int = 1) -> ExecutionRow:
        return ExecutionRow(0, order, 0, "A", 0, start, end, NodeStatus.DONE, start)

    assert self_times([row(0, 10), row(5, 20), row(6, 7)]) == [5, 14, 1]
    assert self_times([row(0, None), row(5, 20), row(20, 21)]) == [0, 15, 1]
    assert self_times([row(0, 10), row(3, 3), row(4, 6, order=0)]) == [10, 0, 0]
    assert self_times([]) == []


def test_events_is_what_the_numbers_mean() -> None:
    kinds = [kind.__name__ for kind in events.EVENT_TYPES[4:8]]
    assert kinds == ["NodeStarted", "NodeFinished", "NodeFailed", "NodeSkipped"]
