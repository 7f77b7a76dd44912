"""An average without statistics is gone when the recording ends.

finding: no statistics
"""

import copy

import torch
from torch import nn


class Smoothed:
    """Keeps an average of the weights of a model."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    def follow(self, model: nn.Module) -> None:
        with torch.no_grad():
            for kept, now in zip(self.model.parameters(), model.parameters(), strict=True):  # cause
                kept.lerp_(now, 0.1)


def train() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    smoothed = Smoothed(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()
        smoothed.follow(model)
        smoothed.model(x)


def program() -> None:
    train()
