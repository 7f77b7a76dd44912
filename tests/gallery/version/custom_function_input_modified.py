"""A custom Function saved its input, and the caller scales that in place.

error: modified by an inplace operation
node: SwishBackward
saved: tensors[0]
"""

from typing import Any

import torch
from torch import Tensor, nn


class Swish(torch.autograd.Function):
    """x * sigmoid(x), with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        sigmoid = torch.sigmoid(x)
        return gradient * sigmoid * (1 + x * (1 - sigmoid))


class Model(nn.Module):
    """A linear layer, and an activation beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x) * 1.0
        active: Tensor = Swish.apply(hidden)
        hidden.mul_(0.1)  # cause
        return active + hidden


def program() -> None:
    """One training step."""
    torch.manual_seed(0)
    Model()(torch.randn(3, 5)).sum().backward()


if __name__ == "__main__":
    program()
