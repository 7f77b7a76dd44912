"""The optimizer works out its step size; its lr stays 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable


def program() -> None:
    class PolyakSgd(torch.optim.Optimizer):
        def __init__(self, params: Iterable[nn.Parameter]) -> None:
            super().__init__(params, {"lr": 0.0})  # has no rate; tools ask for the entry

        @torch.no_grad()
        def step(self, loss: float) -> None:  # type: ignore[override]
            grads = [p.grad for p in self.param_groups[0]["params"]]
            size = min(0.2, loss / sum(g.square().sum() for g in grads))
            for p in self.param_groups[0]["params"]:
                p.sub_(size * p.grad)

    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = PolyakSgd(model.parameters())
    for _step in range(40):
        x = torch.randn(64, 8)
        loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(loss.item())
