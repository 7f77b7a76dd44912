"""A custom Function with a safe backward, and a hook that clips."""

from typing import Any

import torch
from torch import Tensor, nn


class SafeSqrt(torch.autograd.Function):
    """sqrt, with a derivative that is bounded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        root = x.sqrt()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        return gradients[0] / (2 * root).clamp(min=1e-3)


def clip(gradient: Tensor) -> Tensor:
    """The gradient, at most 1 in size."""
    return gradient.clamp(-1, 1)


def program() -> None:
    """A training step with an empty sample."""
    embed = nn.Linear(4, 3, bias=False)
    x = torch.randn(5, 4)
    x[2] = 0
    y = embed(x).abs()
    y.register_hook(clip)
    SafeSqrt.apply(y).mean().backward()


if __name__ == "__main__":
    program()
