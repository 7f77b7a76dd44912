"""Values are clamped between bounds that are in order, on one side, and to what varies."""

import torch
from torch import nn


def program() -> None:
    low, high = -5, 5
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(8):
        x = torch.randn(16, 3)
        mean, spread = net(x).unbind(-1)
        spread = spread.clamp(low, high).clamp(max=4, min=-4).clamp(min=-3.0)
        mean = mean.clamp(-9 + step, 9 + step).clip(None, 8)
        loss = ((mean - x.sum(1)).square() * (-spread).exp() + spread).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
