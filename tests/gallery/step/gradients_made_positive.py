"""Gradients are bounded from below by 0.

finding: sign lost
"""

import torch
from torch import nn


def bounded(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = torch.clamp(parameter.grad, 0.0, 1.0)  # cause


def program() -> None:
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
        bounded(list(net.parameters()))
        optimizer.step()
