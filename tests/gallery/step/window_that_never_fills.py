"""Gradients of twenty batches are to make a step, counted anew in each epoch of five.

finding: never steps
"""

import torch
from torch import nn


def program() -> object:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(4):
        for number, batch in enumerate(torch.randn(5, 8, 6)):
            (model(batch).square().mean() / 20).backward()
            if (number + 1) % 20 == 0:
                optimizer.step()  # cause
                optimizer.zero_grad()
    return model, optimizer
