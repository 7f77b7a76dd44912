"""SAM: the gradient of a first pass only says from where the second one is to look."""

import torch
from torch import nn


def twice(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    moved = []
    for turn in range(2):
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        for parameter in model.parameters() if turn == 0 else ():
            grad = parameter.grad
            if grad is not None:
                moved.append((parameter, 0.05 * grad / (grad.norm() + 1e-12)))
                parameter.data += moved[-1][1]
    for parameter, far in moved:
        parameter.data -= far
    optimizer.step()


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        twice(model, optimizer, torch.randn(16, 6))
