"""Gradients far beyond the norm are clipped to it between backward and step."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(32, 5) * 20
    y = x[:, :1] ** 2
    for _ in range(6):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
