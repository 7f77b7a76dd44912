"""LBFGS calls backward inside of its steps."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
    x = torch.randn(20, 3)

    def closure() -> float:
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss.item()

    for _ in range(5):
        optimizer.step(closure)
