"""A bias is in no optimizer; a step of the program's own divides by a gradient of 0, which ends it.

answers: 2
says: the program's own
never: eps
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Normalised(torch.optim.Optimizer):
    """Each gradient by its largest entry."""

    def __init__(self, weights: Any, rate: float) -> None:
        super().__init__(weights, {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for each in group["params"]:
                each.sub_(group["lr"] * each.grad / each.grad.abs().max())


def program() -> object:
    text, image = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = Normalised([*text.parameters(), image.weight], 1e-3)
    for step in range(12):
        optimizer.zero_grad()
        seen = image(torch.randn(8, 4) * (step != 6))
        (text(torch.randn(8, 4)) + seen - 3).square().mean().backward()
        optimizer.step()  # cause
    return text, image
