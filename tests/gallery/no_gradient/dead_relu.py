"""A bias so negative that no unit of a ReLU layer fires.

gradient: zero
cause: dead_activation
node: ReluBackward0
parameter: first.*
other: second.weight zero zero_factor
"""

import torch
from torch import Tensor, nn


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.second = nn.Linear(8, 1)
        nn.init.constant_(self.first.bias, -100.0)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        hidden = torch.relu(hidden)  # cause
        return self.second(hidden)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return nn.functional.mse_loss(model(torch.randn(16, 5)), torch.ones(16, 1))


def program() -> nn.Module:
    """One training step."""
    model = Perceptron()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
