"""Two optimizers hold the trunk, and both step after each pass.

finding: held twice
"""

import torch
from torch import nn


def program() -> None:
    trunk, left, right = nn.Linear(5, 9), nn.Linear(9, 1), nn.Linear(9, 1)
    first = torch.optim.Adam([*trunk.parameters(), *left.parameters()])
    second = torch.optim.Adam([*trunk.parameters(), *right.parameters()])  # cause
    for _ in range(5):
        h = trunk(torch.randn(8, 5)).relu()
        loss = left(h).square().mean() + (right(h) - 1).square().mean()
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        first.step()
        second.step()
