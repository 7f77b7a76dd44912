"""Neighbours are averaged by a matrix of whole numbers, whose division gives zeros.

gradient: zero
cause: zero_factor
node: MmBackward0
parameter: neighbours.weight
"""

import torch
from torch import Tensor, nn


class Sage(nn.Module):
    """A node's own features, and the mean of its neighbours'."""

    def __init__(self, adjacency: Tensor) -> None:
        super().__init__()
        self.own = nn.Linear(5, 3)
        self.neighbours = nn.Linear(5, 3, bias=False)
        self.mean = (adjacency // adjacency.sum(1, keepdim=True)).float()

    def forward(self, x: Tensor) -> Tensor:
        return self.own(x) + self.neighbours(self.mean @ x)  # cause


def loss(model: nn.Module) -> Tensor:
    """Of one graph."""
    return model(torch.randn(9, 5)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Sage(torch.ones(9, 9, dtype=torch.long))
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
