"""A soft threshold steps on the same weights after SGD, without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable


def program() -> None:
    class SoftThreshold(torch.optim.Optimizer):
        def __init__(self, params: Iterable[torch.Tensor], lr: float, strength: float) -> None:
            super().__init__(params, {"lr": lr, "strength": strength})

        @torch.no_grad()
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                cut = group["lr"] * group["strength"]
                for p in group["params"]:
                    p.copy_(p.sign() * (p.abs() - cut).clamp(min=0))

    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    prox = SoftThreshold([model.weight], lr=0.05, strength=0.1)
    for _step in range(60):
        x = torch.randn(64, 20)
        loss = (model(x).squeeze(1) - x[:, 0] + x[:, 1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prox.step()
