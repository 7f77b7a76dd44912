"""Gradients are clamped in tensors that nobody takes.

finding: unused result
"""

import torch
from torch import nn


def limit(weights: list[nn.Parameter]) -> None:
    for weight in weights:
        if weight.grad is not None:
            weight.grad.clip(-0.01, 0.01)  # cause


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 5)).square().mean().backward()
        limit(list(model.parameters()))
        optimizer.step()
