"""The schedule divides by the square root of the step, which is 0 at first.

finding: rate infinite
"""

import math

import torch
from torch import nn


def inverse_root(step: int) -> float:
    return 1 / math.sqrt(step) if step else math.inf


def program() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, inverse_root)  # cause
    for _ in range(4):
        loss = (model(torch.randn(6, 4)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
