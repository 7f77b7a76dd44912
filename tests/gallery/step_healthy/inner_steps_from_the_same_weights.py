"""Plain SGD has no state: one that is made for each step loses nothing."""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(6, 2)
    for _ in range(6):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
