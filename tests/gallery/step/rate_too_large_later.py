"""Warm-up ends at a rate that is too large: the loss falls, then grows until it overflows.

finding: diverges
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0)  # cause
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, 1e-3 * 1.6**step))
    x = torch.randn(128, 8)
    y = x.sum(1, keepdim=True)
    for _ in range(45):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
        schedule.step()
