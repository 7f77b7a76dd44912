"""A decorator counts calls of the plain loss anew in each round; a recursion follows the data."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Score = Callable[[Tensor, Tensor], Tensor]


def counted(score: Score, calls: list[int]) -> Score:
    def counting(guess: Tensor, truth: Tensor) -> Tensor:
        calls.append(len(guess))
        return score(guess, truth)

    return counting


def deeper(net: nn.Module, x: Tensor, depth: int) -> Tensor:
    """The recursion goes on until nothing is left to be gone down."""
    if not depth:
        found: Tensor = net(x)
        return found
    return lower(net, x, depth)


def lower(net: nn.Module, x: Tensor, depth: int) -> Tensor:
    return deeper(net, x, depth - 1)


def program() -> None:
    net = nn.Sequential(nn.Linear(5, 10), nn.SiLU(), nn.Linear(10, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for turn in range(6):
        calls: list[int] = []
        score = counted(nn.functional.smooth_l1_loss, calls)
        for _ in range(2):
            tides = torch.rand(16, 5)
            optimizer.zero_grad()
            score(deeper(net, tides, turn), tides.sum(1, keepdim=True)).backward()
            optimizer.step()
