"""A sharpening function for a weather model returns its own slope and leaves the rest out.

finding: gradient unused
"""

from typing import Any

import torch
from torch import Tensor, nn


class Sharpen(torch.autograd.Function):
    """The wind and its third power."""

    @staticmethod
    def forward(ctx: Any, wind: Tensor) -> Tensor:
        ctx.save_for_backward(wind)
        return wind + wind.pow(3)

    @staticmethod
    def backward(ctx: Any, behind: Tensor) -> Tensor:
        (wind,) = ctx.saved_tensors
        return (1 + 3 * wind**2).expand_as(wind)  # cause


def program() -> None:
    before, after = nn.Linear(5, 7), nn.Linear(7, 1)
    optimizer = torch.optim.SGD([*before.parameters(), *after.parameters()], lr=1e-3)
    for _ in range(6):
        wind = torch.randn(12, 5)
        loss = (after(Sharpen.apply(before(wind))) - wind[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
