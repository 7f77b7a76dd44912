"""A column is taken from a square of data on purpose, and one of a number from all."""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(6):
        x = torch.randn(16, 6)
        height = net(x)
        slopes = (height - height.detach()[:, 0][None]).abs().mean()
        loss = (height - x[:, :1]).square().mean() + 0.1 * (slopes - 1).abs()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
