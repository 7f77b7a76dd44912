"""Losses of samples, [n], are multiplied by their weights, [n, 1].

finding: all with all
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        x, y = torch.randn(20, 6), torch.randint(0, 3, (20,))
        importance = torch.rand(20, 1) + 0.5
        losses = nn.functional.cross_entropy(model(x), y, reduction="none")
        optimizer.zero_grad()
        (losses * importance).mean().backward()  # cause
        optimizer.step()
