"""A loss is multiplied by a weight of the program's own, and clipped as it is."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    limit = 0.5
    for step in range(12):
        x = torch.randn(20, 6)
        optimizer.zero_grad()
        loss = (model(x) - (1 + step % 3) * x[:, :1]).square().mean() * 50.0
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
