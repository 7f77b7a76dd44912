"""What a trace holds of saved tensors that were modified, and of calls of backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

import agviz
from agviz.traces.reader import Trace
from agviz_engine import torch_modes
from tests.engine.builders import apply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Product(torch.autograd.Function):
    """Saves both factors."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """Multiply."""
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Give each the other."""
        a, b = ctx.saved_tensors
        return gradient * b, gradient * a


def result() -> Tensor:
    y = torch.ones(2, 3, requires_grad=True).exp()
    loss = y.sum()
    y += 1
    return loss


def second_factor() -> Tensor:
    a, b = torch.ones(4, requires_grad=True) * 1, torch.ones(4, requires_grad=True) * 2
    loss: Tensor = apply(Product, a, b).sum()
    b.mul_(2).mul_(2)
    return loss


def other_factor() -> Tensor:
    a, b = torch.ones(4, requires_grad=True) * 1, torch.ones(4, requires_grad=True) * 2
    loss = (a * b).sum()
    b.mul_(2)
    return loss


def one_of_a_list() -> Tensor:
    x = torch.arange(6.0, requires_grad=True) * 1
    index = torch.tensor([1, 2])
    loss = x[index].sum()
    index.add_(1)
    return loss


def weight() -> Tensor:
    last = nn.Linear(4, 2)
    loss: Tensor = nn.Sequential(nn.Linear(3, 4), last)(torch.ones(5, 3)).sum()
    with torch.no_grad():
        last.weight.add_(1)
    return loss


PROGRAMS: dict[Callable[[], Tensor], tuple[str, str, tuple[int, ...], int, int, str]] = {
    result: ("ExpBackward0", "result", (2, 3), 1, 0, ""),
    second_factor: ("ProductBackward", "tensors[1]", (4,), 2, 0, ""),
    other_factor: ("MulBackward0", "other", (4,), 1, 0, ""),
    one_of_a_list: ("IndexBackward0", "indices[0]", (2,), 1, 0, ""),
    weight: ("AddmmBackward0", "mat2", (4, 2), 2, 1, "1.weight"),
}


@pytest.mark.parametrize("provenance", [True, False])
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_a_saved_tensor_that_was_modified(
    make: Callable[[], Tensor], provenance: bool, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as native:
        make().backward()
    path = tmp_path / "t.agviz"
    with (
        pytest.raises(RuntimeError, match="modified by an inplace operation") as ours,
        agviz.trace(path=path, provenance=provenance),
    ):
        make().backward()
    assert str(ours.value) == str(native.value)
    with Trace.open(path) as trace:
        (task,) = trace.graph_tasks
        assert task.message == str(native.value)
        (error,) = trace.version_errors(task.id)
        node, *facts = PROGRAMS[make]
        assert trace.node(task.id, error.node).short_name == node
        told = error.name, error.shape, error.version, error.expected, error.parameter
        assert told == tuple(facts)


def test_what_a_program_says_in_anomaly_mode_is_left(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as native, torch.autograd.set_detect_anomaly(True):
        result().backward()
    with (
        pytest.raises(RuntimeError) as ours,
        agviz.trace(path=tmp_path / "t.agviz"),
        torch.autograd.set_detect_anomaly(True),
    ):
        result().backward()
    assert str(ours.value) == str(native.value)
    assert "Good luck" in str(ours.value)


def test_no_hook_is_asked_of_what_it_packed(tmp_path: Path) -> None:
    unpacked: list[Tensor] = []

    def unpack(packed: Tensor) -> Tensor:
        unpacked.append(packed)
        return packed

    def make() -> Tensor:
        a = torch.ones(4, requires_grad=True) * 1
        with saved_tensors_hooks(lambda tensor: tensor, unpack):
            b = a.exp()
        loss = (b.sin() * b).sum()
        b.mul_(2)
        return loss

    path = tmp_path / "t.agviz"
    with pytest.raises(RuntimeError, match="modified by an in"), agviz.trace(path=path):
        make().backward()
    assert not unpacked
    with Trace.open(path) as trace:
        (task,) = trace.graph_tasks
        (error,) = trace.version_errors(task.id)
        assert trace.node(task.id, error.node).short_name == "MulBackward0"


def test_a_flight_recorder_knows_it_too(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"
    with pytest.raises(RuntimeError), agviz.trace(path=path, on=["exception"], keep=1):
        second_factor().backward()
    with Trace.open(path) as trace:
        (task,) = trace.graph_tasks
        assert [error.name for error in trace.version_errors(task.id)] == ["tensors[1]"]
        assert trace.call_site(task.id)


def test_the_line_that_called_backward_or_grad(tmp_path: Path) -> None:
    path = tmp_path / "t.agviz"

    def nested(_: Tensor) -> None:
        with torch.enable_grad():
            torch.ones(2, requires_grad=True).exp().sum().backward()

    with agviz.trace(path=path):
        x = torch.ones(3, requires_grad=True)
        x.sum().backward()
        torch.autograd.grad(x.exp().sum(), x)
        y = x.exp()
        y.register_hook(nested)
        y.sum().backward()
    first = test_the_line_that_called_backward_or_grad.__code__.co_firstlineno
    with Trace.open(path) as trace:
        sites = [trace.call_site(task.id) for task in trace.graph_tasks]
    mine = [site[-1] for site in sites]
    lines = [(frame.function, frame.line - first) for frame in mine]
    here = "test_the_line_that_called_backward_or_grad"
    assert lines == [(here, 9), (here, 10), (here, 13), ("nested", 5)]
    assert all(frame.file.endswith("test_trace_version_errors.py") for frame in mine)


def test_without_provenance_there_is_no_call_site(tmp_path: Path) -> None:
    with agviz.trace(path=tmp_path / "t.agviz", provenance=False):
        torch.ones(3, requires_grad=True).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert [trace.call_site(task.id) for task in trace.graph_tasks] == [()]


def test_torchs_words_are_known_whatever_is_in_force_when_they_are_asked_for() -> None:
    words = torch_modes.inplace_hint()
    assert "set_detect_anomaly(True" in words
    packed: list[Tensor] = []
    with (
        torch.inference_mode(),
        saved_tensors_hooks(packed.append, lambda _: torch.ones(())),
        torch.autograd.set_detect_anomaly(True),
    ):
        assert torch_modes.inplace_hint.__wrapped__() == words
        assert torch.is_anomaly_enabled()
    assert not packed
