"""A derivative that goes into a loss as a constant is shown, where it may be trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


def slope(of: Tensor, by: Tensor) -> Tensor:
    found: Tensor = torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]
    return found


class Rod(nn.Module):
    """The temperature at a place and a time."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))

    def cooled(self, x: Tensor, t: Tensor) -> Tensor:
        u = self.body(torch.cat([x, t], 1))
        u_t, u_x = slope(u, t), slope(u, x)
        u_xx: Tensor = torch.autograd.grad(u_x, x, torch.ones_like(u_x), retain_graph=True)[0]
        return u_t - 0.1 * u_xx  # cause

    def heated(self, x: Tensor, t: Tensor) -> Tensor:
        u = self.body(torch.cat([x, t], 1))
        return slope(u, t) - 0.1 * slope(slope(u, x), x)

    def lagged(self, x: Tensor, t: Tensor) -> Tensor:
        u: Tensor = self.body(torch.cat([x, t], 1))
        (u_t,) = torch.autograd.grad(u.sum(), t, retain_graph=True)
        return u + u_t.detach()


def trained(residual: Callable[[Rod, Tensor, Tensor], Tensor]) -> None:
    rod = Rod()
    optimizer = torch.optim.Adam(rod.parameters(), lr=1e-3)
    for _ in range(5):
        x, t = (torch.rand(32, 1, requires_grad=True) for _ in range(2))
        wall = rod.body(torch.rand(8, 2) * torch.tensor([0.0, 1.0])).square().mean()
        loss = functional.mse_loss(residual(rod, x, t), torch.zeros(32, 1)) + wall
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def said(path: Path, residual: Callable[[Rod, Tensor, Tensor], Tensor]) -> Verdict:
    torch.manual_seed(0)
    with agviz.trace(path=path):
        trained(residual)
    with Trace.open(path) as trace:
        (verdict,) = verdicts(trace)
    return verdict


def test_a_residual_with_a_derivative_without_a_graph_is_shown(tmp_path: Path) -> None:
    verdict = said(tmp_path / "t.agviz", Rod.cooled)
    assert verdict.outcome is Outcome.CANT_TELL
    assert verdict.source.endswith("# cause")
    assert "0.1 * u_xx" in verdict.paragraph
    assert "create_graph=True" in verdict.paragraph
    assert len(f"{verdict.heading} {verdict.paragraph}".split()) <= 120


@pytest.mark.parametrize("residual", [Rod.heated, Rod.lagged])
def test_derivatives_with_a_graph_and_detached_ones_are_left_alone(
    residual: Callable[[Rod, Tensor, Tensor], Tensor], tmp_path: Path
) -> None:
    assert said(tmp_path / "t.agviz", residual).outcome is Outcome.NOTHING_UNUSUAL
