"""A tower of convolutions unpacks a multiplied list.

finding: one module
"""

import torch
from torch import nn


def program() -> None:
    stage = [nn.Conv1d(3, 3, 3, padding=1), nn.ReLU()] * 3  # cause
    tower = nn.Sequential(nn.Conv1d(1, 3, 1), *stage, nn.Flatten(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(tower.parameters(), lr=1e-2)
    for _ in range(8):
        x = torch.randn(16, 1, 8)
        loss = (tower(x) - x.mean(2)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
