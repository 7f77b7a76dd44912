"""The best model is kept as a copy, and training goes on with a copy of that, again and again.

finding: replaced
"""

import copy

import torch
from torch import nn


def program() -> object:
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # cause
    best = copy.deepcopy(model)
    for turn in range(48):
        x = torch.randn(16, 5)
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()
        if turn % 12 == 11:
            model = copy.deepcopy(best)
    return model, optimizer, best
