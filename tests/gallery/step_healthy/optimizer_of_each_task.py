"""Each task has an optimizer of its own, which steps some times."""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(6, 2)
    for _ in range(4):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).square().mean().backward()
            optimizer.step()
