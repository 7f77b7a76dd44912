"""Two channels are written into one buffer, the second over the first.

gradient: zero
cause: overwritten
node: CopySlices
parameter: left.*
"""

import torch
from torch import Tensor, nn


class Stereo(nn.Module):
    """Two encoders that fill the halves of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 4)
        self.right = nn.Linear(3, 4)
        self.mix = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.zeros(x.shape[0], 8)
        both[:, :4] = self.left(x)
        both[:, :4] = self.right(x)  # cause
        return self.mix(both)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(5, 3)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Stereo()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
