"""The trap of torch.where, whose NaN ReLU's gradient masks away: no parameter gets it.

masked: SqrtBackward0
"""

import torch
from torch import Tensor, nn


class Amplitude(nn.Module):
    """Roots of energies, 0 where there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        energy = torch.relu(self.energy(x))
        return torch.where(energy > 0, energy.sqrt(), 0.0)


def program() -> None:
    """A training step."""
    model = Amplitude()
    model(torch.randn(8, 4)).mean().backward()


if __name__ == "__main__":
    program()
