"""The backward of a layer multiplies the gradient by its input, and forgets it for the input.

finding: gradient unused
"""

from typing import Any

import torch
from torch import Tensor, nn


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t() * rate

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[1]:
            grad_weight = grad.t() @ x
        if ctx.needs_input_grad[0]:
            grad_x = weight.sum(0).expand_as(x)  # cause
        return grad_x, grad_weight, None


def program() -> None:
    first, weight = nn.Linear(4, 4), nn.Parameter(torch.randn(3, 4))
    optimizer = torch.optim.SGD([*first.parameters(), weight], lr=1e-2)
    for _ in range(6):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        apply: Any = _Linear.apply
        (apply(first(x), weight, 1.0) - x[:, :3]).square().mean().backward()
        optimizer.step()
