"""A loop returns early, when the loss is small, or after all."""

import torch
from torch import Tensor, nn


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> int:
    for number, batch in enumerate(batches):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if loss.item() < 1e-6:
            return number
    return len(batches)


def program() -> None:
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        train(model, optimizer, list(torch.randn(4, 16, 5)))
