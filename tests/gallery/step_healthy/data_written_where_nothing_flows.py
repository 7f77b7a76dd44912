"""What is written through .data is a weight between two steps, or has no graph."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        x = torch.randn(12, 4)
        x.data[:, 0] = 0.0
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        for weight in model.parameters():
            weight.data.clamp_(-2, 2)
