"""grad() gives the gradients back, and the optimizer looks for them in .grad.

finding: given back
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss = (model(torch.randn(8, 4)) - 1).square().mean()
        optimizer.zero_grad()
        torch.autograd.grad(loss, list(model.parameters()))  # cause
        optimizer.step()
