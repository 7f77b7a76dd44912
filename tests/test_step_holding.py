"""Optimizers that were made before a layer was replaced, told from those that were not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


class Net(nn.Module):
    """A trunk, and a head that may be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.trunk(x).tanh())
        return found


def trained(path: Path, *, is_early: bool, outputs: int) -> Verdict:
    """A training that replaces a head which an earlier training left with gradients."""
    torch.manual_seed(0)
    model = Net()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05)]
    with agviz.trace(path=path):
        for stage in range(2):
            for _ in range(6):
                model.zero_grad()
                model(torch.randn(8, 6)).square().mean().backward()
                optimizers[-1].step()
            if stage:
                break
            if is_early:
                optimizers.append(torch.optim.SGD(model.parameters(), lr=0.01))
            model.head = nn.Linear(5, outputs)
            if not is_early:
                optimizers.append(torch.optim.SGD(model.parameters(), lr=0.01))
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


def test_an_optimizer_made_before_a_trained_head_was_replaced_is_found(tmp_path: Path) -> None:
    found = trained(tmp_path / "t.agviz", is_early=True, outputs=3)
    assert (
        found.heading
        == "SGD was made before 2 parameters (head.bias and head.weight) were replaced"
    )
    assert "no pass leads to" in found.paragraph


def test_one_made_afterwards_is_not(tmp_path: Path) -> None:
    assert not trained(tmp_path / "t.agviz", is_early=False, outputs=3).is_found
