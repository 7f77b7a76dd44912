"""Where a loss became non-finite, by what nodes had saved, against the recorded forward."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.explanation import explain
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.explanation import Explanation

TARGET = torch.full((4, 3), 0.5)


def scored(x: Tensor) -> Tensor:
    """A loss whose node saves what it is given."""
    return nn.functional.binary_cross_entropy_with_logits(x.sum(-1, keepdim=True) + x, TARGET)


def masked(x: Tensor) -> Tensor:
    """A row that is masked entirely; behind a scale that keeps what is masked."""
    mask = torch.zeros(4, 3, dtype=torch.bool)
    mask[1] = True
    return scored((x.masked_fill(mask, -math.inf) * 2.0).softmax(-1) @ torch.ones(3, 3))


def divided(x: Tensor) -> Tensor:
    """By a difference that is 0 in one place."""
    return scored(x / (x - x[0, 0].detach()).square())


KNOWN: dict[str, Callable[[Tensor], Tensor]] = {
    "log1p": lambda x: scored(torch.log1p(x - 5)),
    "log of a negative number": lambda x: scored((x - 5).log().tanh()),
    "sqrt": lambda x: scored((x - 5).sqrt() * 0.5),
    "exp": lambda x: scored((x * 1e3).exp() - (x * 2e3).exp()),
    "acos": lambda x: scored((x + 2).acos()),
    "pow": lambda x: scored((x - 5) ** 0.5),
    "std": lambda x: scored(x[:1].std(0).mean() + x),
    "masked": masked,
    "divided": divided,
}


def explained(make: Callable[[Tensor], Tensor], path: Path, *, forward: bool) -> Explanation:
    """The answer about the only pass of a program."""
    torch.manual_seed(0)
    x = (torch.rand(4, 3) + 0.5).requires_grad_()
    with agviz.trace(path=path, check_forward=forward):
        make(x @ torch.eye(3)).backward()
    with Trace.open(path) as trace:
        found = explain(trace)
    assert found is not None
    return found


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("name", KNOWN)
def test_what_nodes_saved_leads_to_the_function_that_was_recorded(
    name: str, tmp_path: Path
) -> None:
    found, recorded = (
        explained(KNOWN[name], tmp_path / f"{forward}.agviz", forward=forward)
        for forward in (False, True)
    )
    assert found.finding is not None
    assert recorded.finding is not None
    assert found.finding.pattern == recorded.finding.pattern
    assert found.frame == recorded.frame
    assert "--check-forward" not in found.paragraph


def exponentials(x: Tensor) -> Tensor:
    """Finite ones, whose sum is beyond float32."""
    return scored(x * (x * 0 + 88.5).exp().sum())


def root(x: Tensor) -> Tensor:
    """Of what is infinite before."""
    return scored(x * (x * 1e38).sum().sqrt())


@pytest.mark.parametrize("program", [exponentials, root])
def test_a_sum_that_overflows_is_not_laid_on_what_is_beside_it(
    program: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    found = explained(program, tmp_path / "t.agviz", forward=False)
    assert found.finding is not None
    assert found.finding.pattern == "non-finite in the forward"


def test_what_has_no_graph_is_not_said_to_be_data(tmp_path: Path) -> None:
    def program(x: Tensor) -> Tensor:
        weight = torch.zeros(4, 3) / torch.zeros(4, 3)
        return scored(x * weight)

    found = explained(program, tmp_path / "t.agviz", forward=False)
    assert found.finding is not None
    assert found.finding.pattern == "NaN in a tensor without a graph"
    assert "--check-forward" in found.paragraph
    recorded = explained(program, tmp_path / "f.agviz", forward=True)
    assert recorded.finding is not None
    assert recorded.finding.pattern == "division by zero"


def test_a_parameter_is_named(tmp_path: Path) -> None:
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight[0, 0] = math.nan
    found = explained(lambda x: scored(layer(x).relu()), tmp_path / "t.agviz", forward=False)
    assert found.finding is not None
    assert found.finding.pattern == "NaN in a parameter"


class Poison(torch.autograd.Function):
    """Gives NaN, and saves nothing."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * math.nan

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> Tensor:
        return grads[0]


def poisoned(x: Tensor) -> Tensor:
    """The function, for a strict reader of types."""
    out: Tensor = Poison.apply(x)  # type: ignore[no-untyped-call]
    return out


def test_nobody_is_named_where_nodes_saved_too_little(tmp_path: Path) -> None:
    found = explained(
        lambda x: scored(poisoned((x - 0.1).log())), tmp_path / "t.agviz", forward=False
    )
    assert found.finding is not None
    assert found.finding.pattern == "non-finite in the forward"
    assert "--check-forward" in found.paragraph


def test_only_the_first_loss_is_looked_at_whole(tmp_path: Path) -> None:
    weight = torch.zeros(3, requires_grad=True)
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=False):
        for _ in range(2):
            x = weight - 5
            for _ in range(60):
                x = x * 1.0
            (x.log() * torch.ones(3)).sum().backward()
    with Trace.open(tmp_path / "t.agviz") as trace:
        first, second = (
            len({row.node for row in trace.root_saved(task.id)}) for task in trace.graph_tasks
        )
    assert first > 60 > second
