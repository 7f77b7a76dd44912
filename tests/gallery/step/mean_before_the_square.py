"""The mean of the differences is squared, not the mean of their squares taken.

finding: whole batch
"""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(5):
        hours = torch.rand(32, 3)
        load = hours.sum(1, keepdim=True).sin()
        error = net(hours) - load
        loss = error.mean().pow(2)  # cause
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
