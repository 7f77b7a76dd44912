"""torch.where used twice: the argument of the square root is safe as well."""

import torch
from torch import Tensor, nn


class Amplitude(nn.Module):
    """Roots of energies, 0 where there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        energy = x.pow(2) * self.weight
        is_positive = energy > 0
        roots = torch.where(is_positive, energy, 1.0).sqrt()
        return torch.where(is_positive, roots, 0.0)


def program() -> None:
    """A training step on samples with gaps."""
    model = Amplitude()
    x = torch.randn(8, 6)
    x[2:4, 1] = 0
    model(x).mean().backward()


if __name__ == "__main__":
    program()
