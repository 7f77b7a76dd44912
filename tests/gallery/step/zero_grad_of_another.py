"""zero_grad is called on a copy of the model: gradients pile up.

finding: kept
"""

import copy

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    best = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(10):
        x = torch.randn(16, 6)
        loss = nn.functional.mse_loss(model(x), x[:, :1])
        best.zero_grad()
        loss.backward()
        optimizer.step()  # cause
