"""One column of the data has values of thousands, and the first step overshoots by far.

finding: leaps
"""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    x = torch.stack([torch.rand(64) * 20_000, torch.rand(64), torch.randn(64)], 1)
    y = x[:, :1] / 10_000 + x[:, 1:2]
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)  # cause
    for _ in range(12):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
