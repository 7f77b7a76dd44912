"""Each batch has two backward passes, and a step after each."""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(6):
        x = torch.randn(8, 6)
        for sign in (1.0, -1.0):
            optimizer.zero_grad()
            (model(x) - sign).square().mean().backward()
            optimizer.step()
