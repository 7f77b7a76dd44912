"""A moving average of the weights that leaves the running statistics out.

finding: no statistics
"""

import copy

import torch
from torch import nn


def program() -> object:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(12):
        x = torch.randn(16, 4) + 3
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):  # cause
                mine.lerp_(theirs, 0.1)
    with torch.no_grad():
        average(torch.randn(16, 4) + 3)
    return average
