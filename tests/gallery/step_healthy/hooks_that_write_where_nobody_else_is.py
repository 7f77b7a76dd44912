"""Hooks write in place: to a gradient of one node only, to a copy, or after all others have it."""

import torch
from torch import Tensor, nn


def halve(grad: Tensor) -> None:
    grad *= 0.5


def scaled(grad: Tensor) -> Tensor:
    grad = grad.clone()
    grad *= 0.5
    return grad


class Frozen(nn.Module):
    """Its own flag says what its parameters do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.requires_grad = False
        for weight in self.parameters():
            weight.requires_grad = self.requires_grad


def program() -> None:
    stem, deep, frozen = nn.Linear(4, 4), nn.Linear(4, 4), Frozen()
    weights = [*stem.parameters(), *deep.parameters(), *frozen.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for _ in range(3):
        first = frozen.linear(stem(torch.randn(8, 4)))
        first.register_hook(halve)
        early = first * 2
        early.register_hook(halve)
        far = deep(first.tanh())
        side = first * 3
        side.register_hook(scaled)
        loss = ((far + early) + (far + side)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
