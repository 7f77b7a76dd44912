"""The JSON export says everything the reader says, and nothing else."""

from __future__ import annotations

import itertools
from dataclasses import asdict, fields
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import agviz
from agviz.analysis import passes as passes_module
from agviz.export.json_trace import json_trace
from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz.traces.rows import GraphTaskStatus, NodeStatus
from agviz_engine.events import EVENT_TYPES
from agviz_engine.instruments import Registry
from tests.event_simulator import Simulator, random_graph
from tests.peak_memory import peak_bytes
from tests.trace_event_format import parse

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {kind.__name__: kind for kind in EVENT_TYPES}
TIMES = {"time_ns", "start_ns", "end_ns", "begin_ns"}


def simulated(path: Path, passes: int = 4, size: int = 40, inner: int = 6) -> None:
    registry = Registry()
    with Recorder(path, script="train.py", argv=["--lr", "0.1 ∇"]) as recorder:
        registry.add(recorder)
        simulator = Simulator(registry, Random(0), devices=2)
        for number in range(passes):
            nodes = random_graph(simulator.rng, size, 2)
            called = random_graph(simulator.rng, inner, 2) if inner else None
            fail_at = 7 if number % 4 == 1 else None
            nan_at = 3 if number % 4 == 2 else None
            simulator.backward(nodes, nan_at=nan_at, fail_at=fail_at, reentrant=called)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    simulated(tmp_path / "t.agviz")
    return tmp_path / "t.agviz"


def document(path: Path, graph_task: int | None = None) -> dict[str, Any]:
    with Trace.open(path) as trace:
        found = parse("".join(json_trace(trace, graph_task)).encode("ascii"))
    assert isinstance(found, dict)
    return found


def as_json(value: Any, start_ns: int) -> Any:
    """Rows as the document has them: lists for tuples, times since the recording began."""
    if isinstance(value, dict):
        return {
            key: inner - start_ns
            if key in TIMES and inner is not None
            else as_json(inner, start_ns)
            for key, inner in value.items()
        }
    if isinstance(value, tuple | list):
        return [as_json(inner, start_ns) for inner in value]
    return value


def test_the_document_holds_every_row(path: Path) -> None:
    found = document(path)
    assert list(found) == [
        *("format", "document", "version", "meta", "threads", "graph_tasks", "events"),
        *("forward", "forward_stacks", "findings"),
    ]
    with Trace.open(path) as trace:
        zero = trace.meta.start_ns
        assert found["meta"] == as_json(trace.meta._asdict(), 0)
        assert found["threads"] == [thread._asdict() for thread in trace.threads]
        assert len(found["graph_tasks"]) == 8
        for task, got in zip(trace.graph_tasks, found["graph_tasks"], strict=True):
            nodes = [as_json(asdict(node), zero) for node in trace.nodes(task.id)]
            found_nodes = got.pop("nodes")
            for node in found_nodes:
                assert (node.pop("line"), node["stack"]) == (None, None)
                node["stack"] = []
            assert found_nodes == nodes
            assert got.pop("stacks") == got.pop("saved") == []
            assert got.pop("saved_health") == got.pop("parameters") == []
            assert got.pop("edges") == [edge._asdict() for edge in trace.edges(task.id)]
            row = as_json(task._asdict(), zero)
            row["node_count"], row["edge_count"] = row.pop("nodes"), row.pop("edges")
            assert got == row


def test_where_nodes_come_from_and_what_they_saved(tmp_path: Path) -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return (x * x).tanh()

    x = torch.ones(2, 3, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz"):
        (inner(x) + x.exp()).sum().backward()
    (task,) = document(tmp_path / "t.agviz")["graph_tasks"]
    by_name = {node["short_name"]: node for node in task["nodes"]}
    first = inner.__code__.co_firstlineno
    for name, function, line in (
        ("MulBackward0", "inner", first + 1),
        ("TanhBackward0", "inner", first + 1),
        ("ExpBackward0", "test_where_nodes_come_from_and_what_they_saved", first + 5),
    ):
        stack = task["stacks"][by_name[name]["stack"]]
        frame = [frame for frame in stack if not frame["hidden"]][-1]
        assert (frame["line"], frame["function"]) == (line, function)
        assert by_name[name]["line"] == f"{frame['file']}:{line} in {function}"
    assert by_name["MulBackward0"]["stack"] != by_name["ExpBackward0"]["stack"]
    assert by_name["AddBackward0"]["stack"] == by_name["ExpBackward0"]["stack"]
    assert sorted(
        (task["nodes"][row["node"]]["short_name"], row["name"], row["shape"], row["dtype"])
        for row in task["saved"]
        if task["nodes"][row["node"]]["short_name"] in {"MulBackward0", "ExpBackward0"}
    ) == [
        ("ExpBackward0", "result", [2, 3], "float32"),
        ("MulBackward0", "other", [2, 3], "float32"),
        ("MulBackward0", "self", [2, 3], "float32"),
    ]
    assert all(row["nbytes"] == 24 for row in task["saved"] if row["shape"] == [2, 3])
    with Trace.open(tmp_path / "t.agviz") as trace:
        number = trace.graph_tasks[0].id
        for node in trace.nodes(number):
            each = [row for row in task["saved"] if row["node"] == node.index]
            assert each == [as_json(row._asdict(), 0) for row in trace.saved(number, node.index)]


def test_the_forward_the_parameters_and_what_was_saved_where_it_broke(tmp_path: Path) -> None:
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    with agviz.trace(layer, tmp_path / "t.agviz", check_forward=True):
        layer(torch.ones(1, 2)).sqrt().sum().backward()
        (torch.full((2,), 1e200, dtype=torch.float64) * 1e150).exp()
    found = document(tmp_path / "t.agviz")
    (task,) = found["graph_tasks"]
    with Trace.open(tmp_path / "t.agviz") as trace:
        zero, number = trace.meta.start_ns, task["id"]
        assert task["parameters"] == [as_json(r._asdict(), 0) for r in trace.parameters(number)]
        (broken,) = trace.saved_health(number)
        assert broken.health is not None
        (told,) = task["saved_health"]
        assert told.pop("health") == as_json(broken.health._asdict(), 0)
        assert told == {k: v for k, v in broken._asdict().items() if k != "health"}
        ops = trace.forward_ops()
        stacks = [node.stack for node in trace.nodes(number)]
    assert any(stacks)
    assert not any("check_forward" in frame.file for stack in stacks for frame in stack)
    assert len(found["forward"]) == len(ops) > 5
    for op, row in zip(ops, found["forward"], strict=True):
        stack = [{k: v for k, v in f._asdict().items() if k != "source"} for f in op.stack]
        assert found["forward_stacks"][row["stack"]] == stack
        assert not any(frame.function == "__torch_function__" for frame in op.stack)
        assert (row["line"], row["name"], row["id"]) == (op.line, op.name, op.id)
        assert row["time_ns"] == op.time_ns - zero
        assert range(*row["sequence_nrs"]) == op.sequence_nrs
        assert row.keys() == {field.name for field in fields(op)} | {"line"}
        for tensor, given in zip(op.outputs, row["outputs"], strict=True):
            assert given["tensor"] == tensor.tensor
            assert given["health"]["numel"] == (tensor.health and tensor.health.numel)
    part = document(tmp_path / "t.agviz", number)
    assert [row["id"] for row in part["forward"]] == [op.id for op in ops if op.graph_task >= 0]


def test_the_events_can_be_made_again(path: Path) -> None:
    found = document(path)
    with Trace.open(path) as trace:
        told = trace.events(limit=10**9)
        zero = trace.meta.start_ns
    made = []
    for row in found["events"]:
        kind: Any = KINDS[row.pop("kind")]
        row["time_ns"] += zero
        assert tuple(row) == kind._fields
        made.append(kind(**row))
    assert made == told
    assert len(made) > 1000


def test_the_findings(path: Path) -> None:
    found = document(path)["findings"]
    with Trace.open(path) as trace:
        zero = trace.meta.start_ns
        rows = [as_json(row._asdict(), zero) for row in trace.nonfinite()]
        failed = [task for task in trace.graph_tasks if task.status is GraphTaskStatus.FAILED]
        broken = [
            node.index for node in trace.nodes(failed[0].id) if node.status is NodeStatus.FAILED
        ]
    assert [row for row in found if row["kind"] == "non_finite"] == [
        {"kind": "non_finite", **row} for row in rows
    ]
    assert rows
    assert [row for row in found if row["kind"] == "failure"] == [
        {
            "kind": "failure",
            "graph_task": failed[0].id,
            "error": "RuntimeError",
            "message": "no\nway",
            "nodes": broken,
        }
    ]
    assert broken == [7]


def test_one_graph_task_comes_with_those_inside_it(path: Path) -> None:
    whole, part = document(path), document(path, 0)
    assert [task["id"] for task in part["graph_tasks"]] == [0, 1]
    assert part["graph_tasks"] == whole["graph_tasks"][:2]
    assert part["events"] == [row for row in whole["events"] if row["graph_task"] in {0, 1}]


def test_every_row_stands_on_its_own_line(path: Path) -> None:
    with Trace.open(path) as trace:
        text = "".join(json_trace(trace))
        assert text == "".join(json_trace(trace)), "the same bytes each time"
        events = trace.event_count()
    lines = text.splitlines()
    start = lines.index('"events": [') + 1
    rows = list(itertools.takewhile(lambda line: not line.startswith('"forward"'), lines[start:]))
    assert len(rows) == events
    assert all(line.startswith('{"kind": "') for line in rows)


def test_a_trace_without_a_backward_pass(tmp_path: Path) -> None:
    with Recorder(tmp_path / "t.agviz", script="nothing.py"):
        pass
    found = document(tmp_path / "t.agviz")
    assert found["meta"]["script"] == "nothing.py"
    assert found["graph_tasks"] == found["events"] == found["findings"] == []


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes_module, "_NODES_KEPT", 50)
    monkeypatch.setattr(passes_module, "_EVENTS_PER_PAGE", 500)
    peaks = []
    for passes in (8, 24):
        path = tmp_path / f"{passes}.agviz"
        simulated(path, passes=passes, size=100, inner=0)
        peaks.append(peak_bytes(path, json_trace))
    assert peaks[1] < 1.8 * peaks[0], peaks
