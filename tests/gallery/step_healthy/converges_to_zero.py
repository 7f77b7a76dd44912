"""The loss falls to nothing and gradients with it: small is not wrong."""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    x = torch.randn(64, 3)
    y = x.sum(1, keepdim=True)
    for _ in range(40):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
