"""A loss is a sum, and the learning rate is one for a mean.

finding: diverges
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
    criterion = nn.MSELoss(reduction="sum")  # cause
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(12):
        x = torch.randn(64, 8)
        loss = criterion(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
