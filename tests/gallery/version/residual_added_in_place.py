"""A residual connection adds in place to the activation that exp saved.

error: modified by an inplace operation
node: ExpBackward0
saved: result
"""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A residual block with an exponential in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x).exp()
        y += x  # cause
        return y


def program() -> None:
    """Two blocks, one training step."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), nn.Tanh(), Block())
    model(torch.randn(3, 8)).mean().backward()


if __name__ == "__main__":
    program()
