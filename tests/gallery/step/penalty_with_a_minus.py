"""A penalty of the weights is taken away from the loss, by way of a variable.

finding: penalty
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        x = torch.randn(16, 5)
        size = torch.stack([w.norm() for w in model.parameters()]).sum()  # cause
        error = (model(x) - x[:, :1]).square().mean()
        loss = error - 1e-3 * size
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
