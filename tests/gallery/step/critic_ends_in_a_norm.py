"""A critic ends in a batch norm, of whose output the mean is taken.

finding: single values
"""

import torch
from torch import nn


def program() -> None:
    maker = nn.Linear(3, 4)
    critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.BatchNorm1d(1))
    optimizer = torch.optim.Adam(maker.parameters(), lr=1e-3)
    for _ in range(6):
        optimizer.zero_grad()
        loss = -critic(maker(torch.randn(16, 3))).mean()  # cause
        loss.backward()
        optimizer.step()
