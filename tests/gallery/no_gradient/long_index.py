"""Learned positions are truncated with long() to look a table up.

gradient: none
cause: integer
parameter: offset
"""

import torch
from torch import Tensor, nn


class Warp(nn.Module):
    """Looks a learned table up where a learned offset says."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.tensor([0.2, 1.7, 2.5]))
        self.table = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        place = self.offset.clamp(0, 4).long()  # cause
        return x * self.table[place]


def loss(model: nn.Module) -> Tensor:
    """Of one sample."""
    return model(torch.tensor([1.0, 2.0, 3.0])).sum()


def program() -> nn.Module:
    """One training step."""
    model = Warp()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
