"""Weights are moved to where the loss is sharpest, and stepped from there.

finding: not taken back
"""

import torch
from torch import nn


def climb(model: nn.Module, far: float) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                uphill = far * weight.grad / (weight.grad.norm() + 1e-9)
                weight.add_(uphill)  # cause
                weight.grad = None


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(12):
        x = torch.randn(20, 6)
        (model(x) - x[:, :1]).square().mean().backward()
        climb(model, 0.05)
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
