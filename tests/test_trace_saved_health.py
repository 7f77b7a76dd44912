"""What nodes had saved that made something non-finite of finite gradients."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import agviz
from agviz.errors import TraceError
from agviz.traces.reader import Trace
from tests.unnoticed import noticed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.traces.rows import SavedHealthRow


def saved(program: Callable[[], object], **how: Any) -> list[SavedHealthRow]:
    """What was told of all graph tasks of a program."""
    with agviz.trace(**how) as recorded:
        program()
    trace = recorded.trace
    return [row for task in trace.graph_tasks for row in trace.saved_health(task.id)]


def leaf(*values: float, **kind: Any) -> Tensor:
    return torch.tensor(values, requires_grad=True, **kind)


def test_the_saved_result_of_sqrt_at_zero() -> None:
    x = leaf(0.0, 4.0, float("inf"))
    with agviz.trace() as recorded:
        x.sqrt().sum().backward()
    trace = recorded.trace
    (task,) = [task.id for task in trace.graph_tasks]
    (node,) = [node for node in trace.nodes(task) if node.short_name == "SqrtBackward0"]
    (row,) = trace.saved_health(task, node.index)
    assert trace.saved_health(task) == [row]
    assert (row.node, row.name, row.parameter, row.value) == (node.index, "result", "", None)
    assert row.health is not None
    assert (row.health.zero, row.health.max, row.health.posinf) == (1, 2.0, 1)
    assert (row.health.shape, row.health.dtype, row.health.unknown) == ((3,), "float32", "")


def test_what_is_no_tensor_is_told_as_text() -> None:
    rows = saved(lambda: leaf(0.0).pow(0.5).sum().backward())
    assert [(row.name, row.value) for row in rows] == [("exponent", "0.5"), ("self", None)]
    assert rows[0].health is None
    assert rows[1].health is not None
    assert rows[1].health.zero == 1


def test_a_negative_dimension_is_told_as_it_was_given() -> None:
    rows = saved(lambda: leaf(float("-inf"), float("-inf")).softmax(-1).sum().backward())
    assert [(row.name, row.value) for row in rows] == [("dim", "-1"), ("result", None)]


def test_only_where_finite_gradients_came_in() -> None:
    def program() -> None:
        y = (leaf(1.0) * leaf(2.0)).log()  # what reaches these is not finite any more
        (y - y).sqrt().sum().backward()

    assert {row.name for row in saved(program)} == {"result"}


def test_nothing_where_all_is_finite_or_nothing_is_measured() -> None:
    assert saved(lambda: leaf(4.0).sqrt().sum().backward()) == []
    assert saved(lambda: leaf(0.0).sqrt().sum().backward(), values="none") == []


def test_a_root_gradient_that_is_not_finite_blames_nobody() -> None:
    def program() -> None:
        leaf(4.0).sqrt().backward(torch.tensor([float("nan")]))

    assert saved(program) == []


def test_a_sum_of_finite_gradients_that_overflows_blames_no_node_behind_it() -> None:
    def program() -> None:
        x = leaf(2.0)
        y = x * 1.0
        (y * 3e38 + y * 3e38).backward(torch.ones(1))

    with agviz.trace() as recorded:
        program()
    trace = recorded.trace
    (task,) = [task.id for task in trace.graph_tasks]
    assert [row.posinf for row in trace.health(task) if row.role == "sum"] == [1]
    assert trace.saved_health(task) == []


class Divide(torch.autograd.Function):
    """Divides by zero in its backward only."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.eps = 0.0
        ctx.kept = b.detach()
        ctx.other = object()
        return a / (b + 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        _, b = ctx.saved_tensors
        return gradient / (b + ctx.eps), None


def divided() -> Tensor:
    return torch.Tensor(Divide.apply(leaf(1.0, 2.0), torch.tensor([0.0, 5.0])))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("retain", [False, True])
def test_a_custom_function(retain: bool) -> None:
    rows = saved(lambda: divided().sum().backward(retain_graph=retain))
    assert [(row.name, row.value) for row in rows] == [
        ("tensors[0]", None),
        ("tensors[1]", None),
        ("eps", "0.0"),
        ("kept", None),
    ]
    zeros = [row.health.zero for row in rows if row.health is not None]
    assert zeros == [0, 1, 1]


def test_a_parameter_among_them_is_named_though_it_was_transposed() -> None:
    layer = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(layer.weight, float("nan"))
    rows = saved(lambda: layer(leaf(1.0, 2.0).unsqueeze(0)).sum().backward())
    assert [row.parameter for row in rows if row.health and row.health.nan] == ["weight"]


def test_hooks_that_pack_are_not_called_and_said_so() -> None:
    called = []

    def unpack(packed: Tensor) -> Tensor:
        called.append(packed)
        return packed

    def program() -> None:
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
            y = leaf(0.0).sqrt()
        y.sum().backward()

    (row,) = saved(program)
    assert row.health is not None
    assert (row.health.unknown, row.health.shape) == ("packed by a hook", None)
    assert len(called) == 1  # by torch


def test_a_checkpoint_packs_as_well() -> None:
    def program() -> None:
        checkpoint(lambda x: x.sqrt(), leaf(0.0), use_reentrant=False).sum().backward()

    assert [row.health and row.health.unknown for row in saved(program)] == ["packed by a hook"]


def test_gradients_and_errors_stay_the_same() -> None:
    def gradient() -> Tensor:
        x = leaf(0.0, 1.0, 4.0)
        y = torch.Tensor(Divide.apply(x.sqrt() * x.log(), x))  # type: ignore[no-untyped-call]
        (found,) = torch.autograd.grad(y.sum(), x)
        return found

    native = gradient()
    with agviz.trace():
        ours = gradient()
    assert torch.equal(native.view(torch.int32), ours.view(torch.int32))


def test_saved_memory_is_let_go_of() -> None:
    x = leaf(0.0)
    y = x.sqrt()
    with agviz.trace():
        y.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.sum().backward()


def test_the_program_does_not_notice() -> None:
    plain = noticed(agviz.trace(values="none"))
    assert noticed(agviz.trace())._replace(large_allocations=0) == plain._replace(
        large_allocations=0
    )


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE saved_health SET health = 99",
        "UPDATE saved_health SET health = NULL",
        "UPDATE saved_health SET value = 1",
        "UPDATE saved_health SET name = 99999",
        "UPDATE measured SET nan = -1",
        "UPDATE measured SET zero = 1000",
        "UPDATE measured SET min = 5.0, max = 1.0, mean = 1.0, norm = 1.0",
        "UPDATE measured SET tensor_type = 99",
        (
            "UPDATE tensor_type SET numel = 'x' WHERE id = (SELECT tensor_type FROM measured JOIN"
            " saved_health ON health = measured.id)"
        ),
    ],
)
def test_lies_are_noticed(tmp_path: Path, lie: str) -> None:
    path = tmp_path / "t.agviz"
    saved(lambda: leaf(0.0).sqrt().sum().backward(), path=path)
    database = sqlite3.connect(path, isolation_level=None)
    assert database.execute(lie).rowcount
    database.close()
    with Trace.open(path) as trace, pytest.raises(TraceError, match="damaged"):
        trace.saved_health(trace.graph_tasks[0].id)
