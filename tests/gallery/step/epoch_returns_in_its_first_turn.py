"""The return of the function that trains an epoch is in its loop.

finding: first turn
"""

import torch
from torch import Tensor, nn


def epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> float:
    total = 0.0
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
        return total / len(batches)  # cause
    return total


def program() -> None:
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = list(torch.randn(4, 16, 5))
    for _ in range(5):
        epoch(model, optimizer, batches)
