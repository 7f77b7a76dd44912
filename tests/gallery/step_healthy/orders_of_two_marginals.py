"""Pairs that belong together are held against pairs that are drawn apart, on purpose."""

import torch
from torch import nn


def program() -> None:
    x = torch.randn(40, 3)
    y = x + 0.1 * torch.randn(40, 3)
    critic = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(6):
        apart = x[torch.randperm(40)]
        other = y[torch.randperm(40)]
        joint = critic(torch.cat([x, y], 1)).mean()
        product = critic(torch.cat([apart, other], 1)).exp().mean().log()
        optimizer.zero_grad()
        (product - joint).backward()
        optimizer.step()
