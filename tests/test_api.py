"""The Python API, as the documentation shows it."""

from pathlib import Path

import pytest
import torch

import agviz_engine
from agviz import api


def test_a_recorded_step_can_be_read(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 1)
    with api.record(tmp_path / "step.agviz"):
        model(torch.ones(2, 3)).sum().backward()
    assert not agviz_engine.is_installed()
    model(torch.ones(2, 3)).sum().backward()
    with api.Trace.open(tmp_path / "step.agviz") as trace:
        (task,) = trace.graph_tasks
        assert task.executed == task.nodes
        leaves = {node.parameter for node in trace.nodes(task.id) if node.is_leaf}
        assert leaves == {"weight", "bias"}
        assert trace.meta.end_ns is not None


def test_a_device_policy_is_obeyed(tmp_path: Path) -> None:
    with api.record(tmp_path / "step.agviz", device_policy=lambda node: 1):
        torch.ones(2, requires_grad=True).exp().sum().backward()
    with api.Trace.open(tmp_path / "step.agviz") as trace:
        assert {node.queue for node in trace.nodes(trace.graph_tasks[0].id)} == {1}


def test_what_the_block_raises_comes_out_and_the_trace_is_complete(tmp_path: Path) -> None:
    def fails_in_the_second_backward() -> None:
        with api.record(tmp_path / "step.agviz"):
            torch.ones(2, requires_grad=True).exp().sum().backward()
            torch.ones(2).sum().backward()

    with pytest.raises(RuntimeError, match="does not require grad"):
        fails_in_the_second_backward()
    assert not agviz_engine.is_installed()
    with api.Trace.open(tmp_path / "step.agviz") as trace:
        assert len(trace.graph_tasks) == 1
        assert trace.meta.end_ns is not None


def test_a_place_that_can_not_be_written_changes_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(api.TraceError, match="there is no folder"),
        api.record(tmp_path / "a" / "b"),
    ):
        pass
    assert not agviz_engine.is_installed()
