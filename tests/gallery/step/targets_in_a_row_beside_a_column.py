"""Predictions [n, 1] less targets [n] are [n, n].

finding: all with all
"""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    data = torch.randn(48, 6)
    rain = data[:, 0].abs()
    for turn in range(8):
        rows = slice(turn % 3 * 16, turn % 3 * 16 + 16)
        error = net(data[rows]) - rain[rows]  # cause
        loss = error.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
