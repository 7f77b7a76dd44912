"""The function that trains a batch steps, and so does the loop that calls it.

finding: stepped again
"""

import torch
from torch import Tensor, nn


def train_batch(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def program() -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(6):
        train_batch(model, optimizer, torch.randn(8, 6))
        optimizer.step()  # cause
