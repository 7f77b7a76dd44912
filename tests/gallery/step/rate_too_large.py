"""The learning rate is too large for the squared error: the loss grows in each step.

finding: diverges
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8)  # cause
    x = torch.randn(64, 20)
    y = x @ torch.randn(20, 1)
    for _ in range(60):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
