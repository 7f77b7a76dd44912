"""A backward takes the shape of the gradient that it is given, and not its values.

finding: gradient unused
"""

from typing import Any

import torch
from torch import Tensor, nn


class _Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.tanh()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (out,) = ctx.saved_tensors
        return (1 - out.square()).view(grad.shape)  # cause


def program() -> None:
    first, second = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
    for _ in range(4):
        x = torch.randn(16, 4)
        loss = (second(_Squash.apply(first(x))) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
