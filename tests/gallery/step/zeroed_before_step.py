"""Gradients are set to zero, not to None, between backward and step.

finding: cleared
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        x = torch.randn(7, 5)
        (model(x) - x[:, :1]).square().mean().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()
        optimizer.step()  # cause
