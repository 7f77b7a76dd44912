"""The backward of a custom Function gives None for an input that has a derivative.

gradient: none
cause: returned_none
node: ScaleBackward
parameter: scale
"""

from typing import Any

import torch
from torch import Tensor, nn


class Scale(torch.autograd.Function):
    """Multiplies by a factor; whoever wrote its backward thought the factor was a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return gradients[0] * factor, None


class Scaled(nn.Module):
    """A layer with a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return Scale.apply(self.layer(x), self.scale)  # cause


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(4, 3)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Scaled()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
