"""One derivative of several columns is shown with "?", where their sum may be meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


def derivative(out: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(out, of, torch.ones_like(out), create_graph=True)[0]


def of_all(out: Tensor, t: Tensor) -> Tensor:
    return derivative(out, t) + out[:, :1]


def of_one(out: Tensor, t: Tensor) -> Tensor:
    return derivative(out[:, :1], t) + out[:, 1:]


def summed_by_hand(out: Tensor, t: Tensor) -> Tensor:
    return derivative(out.sum(1, keepdim=True), t) + out[:, :1]


def forwards(out: Tensor, t: Tensor) -> Tensor:
    weights = torch.ones_like(out, requires_grad=True)
    (linear,) = torch.autograd.grad(out, t, weights, create_graph=True)
    (moved,) = torch.autograd.grad(linear, weights, torch.ones_like(t), create_graph=True)
    return moved + linear + out.flip(1)


def of_all_in_two_equations(out: Tensor, t: Tensor) -> Tensor:
    slope = derivative(out, t).squeeze(1)
    first, second = out.unbind(1)
    return torch.stack([2.0 * slope - second.sin(), slope + first * second])


def said(path: Path, residual: Callable[[Tensor, Tensor], Tensor]) -> Verdict:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with agviz.trace(path=path):
        for _ in range(5):
            t = torch.rand(24, 1, requires_grad=True)
            begin = (model(torch.zeros(1, 1)) - 1.0).square().mean()
            loss = residual(model(t), t).square().mean() + begin
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with Trace.open(path) as trace:
        (found,) = verdicts(trace)
    return found


def test_a_sum_that_may_be_meant_is_shown(tmp_path: Path) -> None:
    found = said(tmp_path / "t.agviz", of_all)
    assert found.outcome is Outcome.CANT_TELL
    assert found.source.startswith("return torch.autograd.grad(")
    assert "the derivatives of all 2 columns" in found.paragraph


def test_a_sum_in_two_equations_is_judged(tmp_path: Path) -> None:
    found = said(tmp_path / "t.agviz", of_all_in_two_equations)
    assert found.outcome is Outcome.FOUND
    assert "in of_all_in_two_equations" in found.paragraph


@pytest.mark.parametrize("residual", [of_one, summed_by_hand, forwards])
def test_what_is_meant_is_left_alone(
    tmp_path: Path, residual: Callable[[Tensor, Tensor], Tensor]
) -> None:
    found = said(tmp_path / "t.agviz", residual)
    assert found.outcome is Outcome.NOTHING_UNUSUAL
