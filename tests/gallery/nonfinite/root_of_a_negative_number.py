"""The sine from a cosine that rounding carried beyond 1: the root of a negative number.

pattern: sqrt outside its domain
node: SqrtBackward0
op: torch.sqrt
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Sine(nn.Module):
    """Sines of the angles between directions."""

    def __init__(self) -> None:
        super().__init__()
        self.cosine = nn.Parameter(torch.tensor([0.5, 1.0000001, -0.3]))

    def forward(self) -> Tensor:
        return torch.sqrt(1 - self.cosine**2)  # cause


def program() -> None:
    """A training step."""
    Sine()().mean().backward()


if __name__ == "__main__":
    program()
