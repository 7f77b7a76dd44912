"""An optimizer of the program's own is handed what grad() gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def program() -> None:
    class Sgd(torch.optim.Optimizer):
        def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, grads: Sequence[torch.Tensor]) -> None:  # type: ignore[override]
            for p, g in zip(self.param_groups[0]["params"], grads, strict=False):
                p.add_(g, alpha=-self.param_groups[0]["lr"])

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    params = list(model.parameters())
    optimizer = Sgd(params, lr=0.05)
    for _step in range(60):
        x = torch.randn(32, 8)
        loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
        optimizer.step(torch.autograd.grad(loss, params))
