"""The rate falls in the first stage; in the second it is constant, and no scheduler steps."""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(6, 2)
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    fall = torch.optim.lr_scheduler.ExponentialLR(first, 0.5)
    for _ in range(4):
        first.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        first.step()
        fall.step()
    second = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        second.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        second.step()
