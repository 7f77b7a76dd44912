"""Averages, momentum by hand, and a copy now and then."""

import torch
from torch import nn

KEEP = 0.99


def program() -> None:
    model, smooth, target = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)
    pace = [torch.zeros_like(weight) for weight in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        for weight, before in zip(model.parameters(), pace, strict=True):
            if weight.grad is not None:
                before.mul_(0.9).add_(weight.grad)
                weight.grad.copy_(before)
        optimizer.step()
        with torch.no_grad():
            for kept, now in zip(smooth.parameters(), model.parameters(), strict=True):
                kept.mul_(KEEP).add_(now, alpha=1 - KEEP)
            for kept, now in zip(target.parameters(), model.parameters(), strict=True):
                if step % 3 == 0:
                    kept.copy_(now)
