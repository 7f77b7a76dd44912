"""A buffer meant to be cleared for padding is cleared whole, over what the layer has put in.

gradient: zero
cause: overwritten
node: CopySlices
parameter: project.*
"""

import torch
from torch import Tensor, nn


class Padded(nn.Module):
    """Projects a sequence, adds what comes from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.skip = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.project(x)
        hidden.fill_(0.0)  # cause
        return hidden + self.skip(x)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(2, 5, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Padded()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
