"""Gradients are clipped before backward, when there are none.

finding: not clipped
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    x = torch.randn(32, 5) * 20
    y = x[:, :1] ** 2
    for _ in range(5):
        optimizer.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # cause
        (model(x) - y).square().mean().backward()
        optimizer.step()
