"""Hooks made in a loop get the rate of their part by functools.partial."""

import functools

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    for name, parameter in model.named_parameters():
        rate = 0.5 if name.startswith("0") else 0.9
        parameter.register_hook(functools.partial(torch.mul, other=rate))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(16, 4)), torch.randint(0, 3, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
