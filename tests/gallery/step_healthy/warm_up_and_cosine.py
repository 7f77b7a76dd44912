"""The rate begins at 0, warms up, and ends at 0."""

import math

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    shape = lambda step: min(step / 4, 0.5 + 0.5 * math.cos(math.pi * min(step, 20) / 20))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, shape)
    for _ in range(21):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
