"""Two feature maps are joined, and a slice of a fixed width leaves the second out.

gradient: zero
cause: not_in_loss
node: CatBackward0
parameter: side.*
"""

import torch
from torch import Tensor, nn


class Joined(nn.Module):
    """Features of two kinds, of which a head takes the first six."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Linear(4, 6)
        self.side = nn.Linear(4, 2)
        self.head = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.cat([self.main(x), self.side(x)], -1)  # cause
        return self.head(features[:, :6])


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(4, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Joined()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
