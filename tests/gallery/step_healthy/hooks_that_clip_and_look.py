"""Hooks clip in place on purpose, work on copies to log, and give a new gradient back."""

import torch
from torch import Tensor, nn


def program() -> list[float]:
    seen: list[float] = []

    def clip(grad: Tensor) -> None:
        grad.clamp_(-1, 1)
        seen.append(grad.norm().item())

    def log_share(grad: Tensor) -> None:
        grad = grad.clone()
        grad /= grad.norm() + 1e-8
        seen.append(grad.max().item())

    def halve(grad: Tensor) -> Tensor:
        seen.append(grad.norm().item())
        return grad.mul(0.5)

    first, last = nn.Linear(4, 8), nn.Linear(8, 1)
    model = nn.Sequential(first, nn.Tanh(), last)
    first.weight.register_hook(clip)
    first.bias.register_hook(log_share)
    last.weight.register_hook(halve)
    last.bias.register_hook(lambda grad: seen.append(grad.abs().max().item()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    return seen
