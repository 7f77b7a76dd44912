"""A residual branch is scaled by a learned number that starts at zero: only that number learns.

gradient: zero
cause: zero_factor
node: MulBackward0
parameter: branch.*
"""

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """A block that is the identity at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.branch = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4))
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return x + self.scale * self.branch(x)  # cause


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(4, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Residual()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
