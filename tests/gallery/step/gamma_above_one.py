"""A schedule multiplies the rate by more than 1 after each batch, and nothing ends that.

finding: diverges
"""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # cause
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=1.25)
    tides = torch.randn(60, 6)
    for _ in range(34):
        optimizer.zero_grad()
        (model(tides) - tides[:, :1]).square().mean().backward()
        optimizer.step()
        schedule.step()
