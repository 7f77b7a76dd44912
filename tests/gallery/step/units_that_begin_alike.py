"""All weights of all layers begin as one number.

finding: alike
"""

import torch
from torch import nn


def begin(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.weight, 0.05)  # cause
        nn.init.zeros_(module.bias)


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 1))
    model.apply(begin)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        x = torch.randn(16, 5)
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()
