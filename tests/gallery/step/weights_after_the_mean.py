"""Importance weights of a replay are multiplied with a loss that is reduced already.

finding: after the mean
"""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(12):
        x, importance = torch.randn(32, 4), torch.rand(32, 1)
        error = net(x) - x.sum(1, keepdim=True)
        loss = 0.5 * error.square().mean()
        optimizer.zero_grad()
        (loss * importance).sum().backward()  # cause
        optimizer.step()
