"""Parameters go into a custom Function in a list, where autograd does not look for tensors.

gradient: none
cause: not_differentiable
parameter: scales.*
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Product(torch.autograd.Function):
    """Multiplies by several factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factors: Sequence[Tensor]) -> Tensor:
        ctx.factors = [factor.clone() for factor in factors]
        for factor in factors:
            x = x * factor
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0]
        for factor in ctx.factors:
            gradient = gradient * factor
        return gradient, None


class Scaled(nn.Module):
    """A layer with two learned scales."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.scales = nn.ParameterList([torch.ones(3), torch.ones(3)])

    def forward(self, x: Tensor) -> Tensor:
        return Product.apply(self.layer(x), list(self.scales))  # cause


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
