"""Which parameters were known when a graph task began."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

import agviz
from agviz.errors import TraceError
from agviz.record.parameter_norms import ParameterNorms
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path


class Halves(nn.Module):
    """One half of it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(2, 3)
        self.unused = nn.Linear(2, 3, dtype=torch.float64)
        self.used.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.Tensor(self.used(x)).sum()


def test_each_is_described() -> None:
    model = Halves()
    with agviz.trace(model) as recorded:
        model(torch.ones(1, 2)).backward()
        model(torch.ones(1, 2)).backward()
    trace = recorded.trace
    first, second = (task.id for task in trace.graph_tasks)
    rows = trace.parameters(first)
    assert [(row.name, row.shape, row.dtype, row.requires_grad) for row in rows] == [
        (name, tuple(parameter.shape), str(parameter.dtype)[6:], parameter.requires_grad)
        for name, parameter in model.named_parameters()
    ]
    (leaf,) = [node for node in trace.nodes(first) if node.is_leaf]
    assert [row.node for row in rows] == [leaf.index, None, None, None]
    assert leaf.parameter == "used.weight"
    assert [row.had_grad for row in rows] == [False] * 4
    assert [row.had_grad for row in trace.parameters(second)] == [True, False, False, False]


def test_what_changed_is_told_anew() -> None:
    model = Halves()
    with agviz.trace(model) as recorded:
        model(torch.ones(1, 2)).backward()
        model.used.bias.requires_grad_(True)
        model(torch.ones(1, 2)).backward()
        model.double()
        model(torch.ones(1, 2, dtype=torch.float64)).backward()
    trace = recorded.trace
    told = [{row.name: row for row in trace.parameters(task.id)} for task in trace.graph_tasks]
    assert [row["used.bias"].requires_grad for row in told] == [False, True, True]
    assert [row["used.weight"].dtype for row in told] == ["float32", "float32", "float64"]


def test_nothing_is_known_without_modules(tmp_path: Path) -> None:
    with agviz.trace() as recorded:
        torch.ones(2, requires_grad=True).sum().backward()
    assert [recorded.trace.parameters(task.id) for task in recorded.graph_tasks] == [[]]


def test_a_parameter_that_was_not_made_yet_has_no_shape() -> None:
    model = nn.ModuleList([nn.LazyLinear(3), nn.Linear(2, 2)])
    with agviz.trace(model) as recorded:
        model[1](torch.ones(1, 2)).sum().backward()
    (task,) = recorded.graph_tasks
    shapes = {row.name: row.shape for row in recorded.trace.parameters(task.id)}
    assert shapes["0.weight"] is None
    assert shapes["1.weight"] == (2, 2)


def test_many_steps_take_little_room(tmp_path: Path) -> None:
    model = nn.ModuleList([nn.Linear(1, 1) for _ in range(500)])
    with agviz.trace(model, tmp_path / "t.agviz"):
        for _ in range(50):
            model[0](torch.ones(1, 1)).backward()
            model[0].zero_grad()
    database = sqlite3.connect(tmp_path / "t.agviz")
    (rows,) = database.execute("SELECT count(*) FROM parameter").fetchone()
    (tasks,) = database.execute("SELECT count(*) FROM parameters").fetchone()
    database.close()
    assert (rows, tasks) == (1000, 50)


def test_modes_of_the_program_do_not_see_it() -> None:
    seen: list[Any] = []

    class Seeing(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    model = Halves()
    loss = model(torch.ones(1, 2))
    with agviz.trace(model), Seeing():
        loss.backward()
    asked = [torch.Tensor.requires_grad, torch.Tensor.dtype, torch.Tensor.shape]
    assert not [func for func in seen if getattr(func, "__self__", None) in asked]


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE parameter SET number = number + 10",
        "UPDATE parameter SET dtype = 9999",
        "UPDATE parameters SET had_grad = 1",
        "DELETE FROM parameter WHERE number = 2",
        "UPDATE parameter SET shape = name",
    ],
)
def test_lies_are_noticed(tmp_path: Path, lie: str) -> None:
    model = Halves()
    with agviz.trace(model, tmp_path / "t.agviz"):
        model(torch.ones(1, 2)).backward()
        model(torch.ones(1, 2)).backward()
    database = sqlite3.connect(tmp_path / "t.agviz", isolation_level=None)
    assert database.execute(lie).rowcount
    database.close()
    with Trace.open(tmp_path / "t.agviz") as trace, pytest.raises(TraceError, match="damaged"):
        trace.parameters(trace.graph_tasks[1].id)


def test_leaves_are_what_accumulates(tmp_path: Path) -> None:
    """Torch gives its Error nodes no sequence number either."""
    path = tmp_path / "t.agviz"
    with agviz.trace(path=path):
        x = torch.ones(3, requires_grad=True)
        y: Any = cast("Any", _Once).apply(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            (gradient * x).sum().backward()
    with Trace.open(path) as trace:
        _, last = trace.graph_tasks
        nodes = trace.nodes(last.id)
        assert "Error" in {node.short_name for node in nodes}
        assert list(trace.leaves(last.id)) == [node.index for node in nodes if node.is_leaf]


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    @once_differentiable
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 2


def test_a_norm_is_not_that_of_a_parameter_that_is_gone() -> None:
    memory = bytearray(64)
    for _ in range(1_000):  # now and then something else takes the place of the one that is gone
        norms = ParameterNorms()
        gone = nn.Parameter(torch.frombuffer(memory, dtype=torch.float32))
        place = id(gone)
        assert norms.of([gone], measure=True) == [0.0]
        data = torch.frombuffer(memory, dtype=torch.float32)
        del gone
        other = nn.Parameter(data)
        if id(other) == place:
            break
    else:
        raise AssertionError("no parameter took the place of the one that is gone")
    other.data.fill_(1.0)
    assert norms.of([other], measure=True) == [4.0]


def test_a_parameter_whose_memory_was_given_back_has_no_norm() -> None:
    """FSDP does that between forward and backward; reading it ends the process."""
    parameter = nn.Parameter(torch.ones(4, 4))
    parameter.untyped_storage().resize_(0)
    assert ParameterNorms().of([parameter], measure=True) == [None]


def test_a_parameter_that_functorch_wrapped_has_no_norm() -> None:
    found = []

    def loss(parameter: torch.Tensor) -> torch.Tensor:
        found.append(ParameterNorms().of([parameter], measure=True))
        return parameter.sum()

    torch.func.grad(loss)(torch.ones(4))
    assert found == [[None]]
