"""A scheduler that waits for a loss to fall is given an accuracy.

finding: wrong way
"""

import torch
from torch import nn


def _accuracy(model: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(x).argmax(1) == labels).float().mean().item()


def program() -> None:
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.2, patience=0)  # cause
    x = torch.randn(64, 5)
    labels = (x[:, 0] > 0).long()
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plateau.step(_accuracy(model, x, labels))
