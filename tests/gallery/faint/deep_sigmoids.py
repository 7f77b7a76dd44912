"""Twelve layers of sigmoids: each passes less than a quarter of the gradient.

cause: faint
node: SigmoidBackward0
parameter: first.*
"""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.rest = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
        for layer in self.rest:
            layer.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.first(x)
        for layer in [*self.rest, *self.rest]:
            hidden = layer(torch.sigmoid(hidden))  # cause
        return hidden


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
