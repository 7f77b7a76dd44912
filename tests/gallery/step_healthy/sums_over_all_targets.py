"""Micro batches of 2 and of 16 targets are summed, and divided by the number of all."""

import torch
from torch import nn
from torch.nn import functional as F


def program() -> None:
    model = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for count in (16, 2):
            targets = torch.full((16,), -100)
            targets[:count] = torch.randint(0, 3, (count,))
            loss = F.cross_entropy(model(torch.randn(16, 5)), targets, reduction="sum") / 18
            loss.backward()
        optimizer.step()
