"""A module that is called with other tensors in the place of its parameters, before any call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.func import functional_call

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.analysis.why import why
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

NET = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))


def adapted(*, is_cut: bool) -> torch.Tensor:
    fast: dict[str, torch.Tensor] = dict(NET.named_parameters())
    if is_cut:
        fast = {name: each.detach().clone().requires_grad_() for name, each in fast.items()}
    x = torch.randn(5, 2)
    inner = functional_call(NET, fast, (x,)).square().mean()
    gradients = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
    fast = {
        name: each - 0.1 * gradient
        for (name, each), gradient in zip(fast.items(), gradients, strict=True)
    }
    loss: torch.Tensor = (functional_call(NET, fast, (x,)) - 1).square().mean()
    return loss


def trained(path: Path, *, is_cut: bool) -> None:
    optimizer = torch.optim.Adam(NET.parameters())
    with agviz.trace(path=path):
        for _ in range(12):
            optimizer.zero_grad()
            adapted(is_cut=is_cut).backward()
            optimizer.step()


@pytest.mark.slow
def test_copies_are_not_taken_for_parameters(tmp_path: Path) -> None:
    trained(tmp_path / "t.agviz", is_cut=True)
    with Trace.open(tmp_path / "t.agviz") as trace:
        first = trace.graph_tasks.outermost.accumulating[0].id
        for task in (first, None):
            assert {(row.parameter, row.gradient) for row in why(trace, graph_task=task)} == {
                (name, "none") for name, _ in NET.named_parameters()
            }
        found = verdicts(trace)[0]
    assert found.outcome is Outcome.CANT_TELL
    assert "4 of 4 parameters have no gradient (None)" in found.heading


def test_parameters_themselves_are(tmp_path: Path) -> None:
    trained(tmp_path / "t.agviz", is_cut=False)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert {row.gradient for row in why(trace)} == {"some"}
        assert verdicts(trace)[0].outcome is Outcome.NOTHING_UNUSUAL
