"""A penalty on differences subtracts a branch from itself: its two gradients cancel.

gradient: zero
cause: cancelled
parameter: branch.*
"""

import torch
from torch import Tensor, nn


class Siamese(nn.Module):
    """Twins that should have seen two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Linear(4, 3)
        self.head = nn.Linear(3, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        one = self.branch(x)  # cause
        return self.head(y[:, :3] + one - one)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(4, 4), torch.randn(4, 4)).sum()


def program() -> nn.Module:
    """One training step."""
    model = Siamese()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
