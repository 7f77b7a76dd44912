"""Of two inputs of a Function, the derivative by one is not multiplied by the gradient.

finding: gradient unused
"""

from typing import Any

import torch
from torch import Tensor, nn


class _Tilt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tilt: Tensor) -> Tensor:
        ctx.save_for_backward(x, tilt)
        return torch.tanh(x) + tilt * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (upstream,) = gradients
        x, tilt = ctx.saved_tensors
        flat = 1 - torch.tanh(x) ** 2
        by_x = flat + tilt  # cause
        return by_x, (upstream * x).sum().reshape(tilt.shape)


def program() -> None:
    layer, last, tilt = nn.Linear(4, 6), nn.Linear(6, 2), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([*layer.parameters(), *last.parameters(), tilt], lr=1e-2)
    for _ in range(6):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        apply: Any = _Tilt.apply
        (last(apply(layer(x), tilt)) - x[:, :2]).square().mean().backward()
        optimizer.step()
