"""Hooks step each parameter and free its gradient; the optimizer outside keeps the rate."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    outer = torch.optim.SGD(model.parameters(), lr=0.05)  # holds the rate, for the scheduler
    scheduler = torch.optim.lr_scheduler.StepLR(outer, 20, 0.5)

    def update(p: torch.Tensor) -> None:
        with torch.no_grad():
            assert p.grad is not None
            p.add_(p.grad, alpha=-outer.param_groups[0]["lr"])
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    for _step in range(60):
        x = torch.randn(32, 8)
        loss = (model(x).squeeze(1) - x[:, 0]).square().mean()
        loss.backward()
        outer.step()
        scheduler.step()
