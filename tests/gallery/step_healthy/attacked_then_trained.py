"""Passes that find an attack on the input leave gradients in parameters, which are cleared."""

import torch
from torch import nn


def gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    return x.grad


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        x, y = torch.randn(12, 8), torch.randint(2, (12,))
        for _ in range(2):
            slope = gradients(model, x.requires_grad_(), y)
            assert slope is not None
            x = (x + 0.1 * slope.sign()).detach()
        gradients(model, x, y)
        optimizer.step()
