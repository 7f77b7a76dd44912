"""Gradients are cleared before the step of LBFGS, which evaluates its closure several times.

finding: kept
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4)
    x = torch.randn(20, 3)

    def closure() -> float:
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()  # cause
        return loss.item()

    for _ in range(4):
        optimizer.zero_grad()
        optimizer.step(closure)
