"""A validation names eval() without calling it: dropout and batch norm act as in training.

finding: only named
"""

import torch
from torch import nn


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval  # noqa: B018  # cause
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        model.train()
        x = torch.randn(16, 4)
        y = (x[:, 0] > 0).long()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        accuracy(model, x, y)
