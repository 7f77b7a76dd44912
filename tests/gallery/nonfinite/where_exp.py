"""ELU by hand: exp overflows in the branch that torch.where does not take.

pattern: 0 * inf behind torch.where
node: ExpBackward0
"""

import torch
from torch import Tensor, nn


class Elu(nn.Module):
    """An activation."""

    def forward(self, x: Tensor) -> Tensor:
        grown = torch.exp(x)  # cause
        return torch.where(x > 0, x, grown - 1)


def program() -> None:
    """A training step on features that were not scaled."""
    model = nn.Sequential(nn.Linear(4, 8), Elu(), nn.Linear(8, 1))
    model(torch.randn(6, 4) * 400).mean().backward()


if __name__ == "__main__":
    program()
