"""A weight decay that was meant to be 1e-3 takes a twentieth of each weight at every step.

finding: decays
"""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    x = torch.randn(64, 10)
    y = x[:, :1].sin()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=1.0)  # cause
    for _ in range(40):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
