"""Vectors are divided by their norm, and one of them is zero.

pattern: norm at zero
node: DivBackward0
"""

import torch
from torch import Tensor, nn


class Directions(nn.Module):
    """Maps points to unit vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(5, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(x)
        return y / y.norm(dim=-1, keepdim=True)  # cause


def program() -> None:
    """A training step with an empty sample."""
    model = Directions()
    x = torch.randn(6, 5)
    x[2] = 0
    (1 - model(x)[:, 0]).mean().backward()


if __name__ == "__main__":
    program()
