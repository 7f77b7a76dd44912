"""A list keeps small graphs; what slows each step is a function that is wrapped once more.

answers: 2
says: the graph grows
"""

from collections.abc import Callable

import torch
from torch import nn


def wrap(inner: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return inner(x + torch.randn_like(x)).clone()  # cause

    return noisy


def program() -> object:
    kept: list[torch.Tensor] = []
    forward: Callable[..., torch.Tensor] = nn.Linear(2, 1).forward
    for _ in range(40):
        forward = wrap(forward)
        loss = forward(torch.randn(4, 2)).square().mean()
        loss.backward()
        kept.append(loss)
    return kept
