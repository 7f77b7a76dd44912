"""A custom Function divides by a norm it saved, which is 0: no known pattern, a plain answer.

pattern: none
node: NormalizeBackward
"""

from typing import Any

import torch
from torch import Tensor, nn


class Normalize(torch.autograd.Function):
    """x / |x|, with a backward written by hand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        length = x.norm(dim=-1, keepdim=True)
        ctx.save_for_backward(x, length)
        return x / length.clamp(min=1e-6)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, length = ctx.saved_tensors
        (gradient,) = gradients
        return (gradient - x * (gradient * x).sum(-1, keepdim=True) / length**2) / length


class Directions(nn.Module):
    """Unit vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Normalize.apply(self.embed(x))  # cause
        return out


def program() -> None:
    """A training step with an empty sample."""
    model = Directions()
    x = torch.randn(5, 4)
    x[2] = 0
    model(x).sum().backward()


if __name__ == "__main__":
    program()
