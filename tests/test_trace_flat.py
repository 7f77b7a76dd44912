"""A file holds the same rows, with or without another instrument beside the recorder."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agviz.record.recorder import Recorder
from agviz.traces.reader import Trace
from agviz_engine import Instrument, events, installed
from agviz_engine.emissions import JOURNALED
from tests.engine.builders import leaf
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.record.capture_level import CaptureLevel


FLAT = tuple(JOURNALED)


class Other(Instrument):
    """Makes the engine build every event."""

    def any_event(self, event: events.Event, live: Any) -> None:
        pass


def recorded(
    path: Path,
    program: Callable[[], object],
    values: CaptureLevel,
    *others: Instrument,
    nodes: re.Pattern[str] | None = None,
) -> list[tuple[Any, ...]]:
    """All that was recorded without what differs from run to run: seq, time, thread, first id."""
    torch.manual_seed(0)
    recorder = Recorder(path, values=values, nodes=nodes)
    with recorder, installed(recorder, *others):
        program()
    with Trace.open(path) as trace:
        first = trace.graph_tasks[0].id
        told = list(trace.events(limit=10**6))
        places = {event.seq: place for place, event in enumerate(told)}
        return [
            (type(event).__name__, event.graph_task - first, *event[4:])
            if isinstance(event, FLAT)
            else (type(event).__name__,)
            for event in told
        ] + [
            (*row._replace(graph_task=row.graph_task - first, seq=places[row.seq]),)
            for row in trace.health()
        ]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("values", ["none", "health"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_alone_or_not_the_file_is_the_same(tmp_path: Path, name: str, values: CaptureLevel) -> None:
    alone = recorded(tmp_path / "alone.agviz", PROGRAMS[name], values)
    assert {event[0] for event in alone} >= {"QueuePush", "QueuePop", "NodeStarted", "NodeFinished"}
    beside = recorded(tmp_path / "beside.agviz", PROGRAMS[name], values, Other())
    assert list(map(repr, alone)) == list(map(repr, beside))


@pytest.mark.parametrize("values", ["none", "health"])
@pytest.mark.parametrize("nodes", ["Sin", "Cos", "Tanh|Exp", "AccumulateGrad"])
def test_only_what_concerns_chosen_nodes(tmp_path: Path, values: CaptureLevel, nodes: str) -> None:
    def program() -> None:
        leaf(4).sin().cos().exp().tanh().sum().backward()

    chosen = re.compile(nodes)
    alone = recorded(tmp_path / "alone.agviz", program, values, nodes=chosen)
    beside = recorded(tmp_path / "beside.agviz", program, values, Other(), nodes=chosen)
    assert len(alone) > 10
    assert list(map(repr, alone)) == list(map(repr, beside))


@pytest.mark.parametrize("values", ["none", "health"])
def test_nodes_with_a_second_output_that_nobody_needs(tmp_path: Path, values: CaptureLevel) -> None:
    def program() -> None:
        x = leaf(4)
        (x * 2.0 + 1.0).mul(3.0).sub(x * 0.5).sum().backward()
        (x.detach() * x).sum().backward()

    alone = recorded(tmp_path / "alone.agviz", program, values)
    outputs = {event[-1] for event in alone if event[0] == "NodeFinished"}
    assert outputs == {0, 1, 2}
    assert alone == recorded(tmp_path / "beside.agviz", program, values, Other())


def test_a_leaf_ends_after_it_began_and_time_does_not_go_back(tmp_path: Path) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(4)))
    with Recorder(tmp_path / "t.agviz") as recorder, installed(recorder):
        model(torch.randn(2, 3)).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        told = list(trace.events(limit=10**6))
        leaves = {
            node.index
            for node in trace.nodes(trace.graph_tasks[0].id)
            if node.name.endswith("AccumulateGrad")
        }
    times = [event.time_ns for event in told]
    assert times == sorted(times)
    began = {e.node: e.time_ns for e in told if isinstance(e, events.NodeStarted)}
    ended = {e.node: e.time_ns for e in told if isinstance(e, events.NodeFinished)}
    written = {e.node: e.time_ns for e in told if isinstance(e, events.LeafAccumulated)}
    assert len(leaves) == 8
    assert all(began[node] < written[node] <= ended[node] for node in leaves)


def test_time_does_not_go_back_where_gradients_are_added_up(tmp_path: Path) -> None:
    x, y = leaf(4), leaf(4)
    with Recorder(tmp_path / "t.agviz") as recorder, installed(recorder):
        for _ in range(10):
            a, b = x * 2.0, y * 3.0
            (a * b + (a - b) + (a + b)).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        told = list(trace.events(limit=10**6))
    sums = [isinstance(event, events.GradientAccumulated) and event.added for event in told]
    assert sum(sums) >= 40
    times = [event.time_ns for event in told]
    assert times == sorted(times)


@pytest.mark.parametrize("values", ["none", "health"])
def test_gradients_that_can_not_be_added(tmp_path: Path, values: CaptureLevel) -> None:
    def program() -> None:
        x = leaf(4, 3)
        table = x * 2.0
        later = table.sum()
        first = torch.nn.functional.embedding(torch.tensor([1, 2]), table, sparse=True)
        with pytest.raises(RuntimeError, match="sparse, dense"):
            torch.autograd.grad(first.sum() + later, x, create_graph=True)

    alone = recorded(tmp_path / "alone.agviz", program, values)
    assert ("NodeFailed",) in alone
    assert alone == recorded(tmp_path / "beside.agviz", program, values, Other())


class Refuse(TorchDispatchMode):
    """Lets nobody take a gradient."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            raise ZeroDivisionError
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("values", ["none", "health"])
@pytest.mark.parametrize("leaves", [1, 2, 5])
def test_a_leaf_that_can_not_take_its_gradient(
    tmp_path: Path, values: CaptureLevel, leaves: int
) -> None:
    def program() -> None:
        loss = torch.stack([leaf(4) * 2.0 for _ in range(leaves)]).sum()
        with Refuse(), pytest.raises(ZeroDivisionError):  # type: ignore[no-untyped-call]
            loss.backward()

    alone = recorded(tmp_path / "alone.agviz", program, values)
    assert ("NodeFailed",) in alone
    assert alone == recorded(tmp_path / "beside.agviz", program, values, Other())


def test_a_recorder_closed_in_the_midst_keeps_nothing_more(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t.agviz", values="health")
    with installed(recorder):
        y = leaf(4)
        for _ in range(100):
            y = y * 1.0
        y.register_hook(lambda _: recorder.close())
        y.sum().backward()
    assert not recorder.is_recording
    assert len(recorder.file.journal) == 0


def test_passes_in_hooks_of_leaves_find_others_waiting(tmp_path: Path) -> None:
    def program() -> None:
        weight, bias = (torch.ones(3, requires_grad=True) for _ in range(2))

        def again(parameter: torch.Tensor) -> None:
            inner = parameter.detach().requires_grad_()
            with torch.enable_grad():
                (inner * weight.detach() + inner.exp()).sum().backward()
                with contextlib.suppress(RuntimeError):
                    failing(inner).sum().backward()

        for parameter in (weight, bias):
            parameter.register_post_accumulate_grad_hook(again)
        for _ in range(2):
            (bias + weight).sum().backward()
            weight.exp().mul(bias).sum().backward()

    alone = recorded(tmp_path / "alone.agviz", program, "none")
    sizes = {event[-1] for event in alone if event[0] == "QueuePush"}
    assert len(sizes) > 2
    assert alone == recorded(tmp_path / "beside.agviz", program, "none", Other())


def failing(x: torch.Tensor) -> torch.Tensor:
    def fail(_gradient: torch.Tensor) -> None:
        raise RuntimeError("on purpose")

    y = x * 2
    y.register_hook(fail)
    return y * x
