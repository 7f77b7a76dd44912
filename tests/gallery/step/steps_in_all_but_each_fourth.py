"""Gradients of four batches are to be added up, but the remainder is taken for a truth.

finding: inverted
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    accumulate = 4
    for step in range(24):
        x = torch.randn(8, 2, 8)
        loss = (model(x)[:, 0] - x.mean((1, 2))).square().mean()
        (loss / accumulate).backward()
        if (step + 1) % accumulate:  # cause
            optimizer.step()
            optimizer.zero_grad()
