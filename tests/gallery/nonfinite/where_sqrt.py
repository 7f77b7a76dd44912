"""A square root that torch.where guards against what is not positive: its gradient is NaN.

pattern: 0 * inf behind torch.where
node: SqrtBackward0
"""

import torch
from torch import Tensor, nn


class Amplitude(nn.Module):
    """Roots of weighted energies, 0 where there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        energy = x.pow(2) * self.weight
        roots = energy.sqrt()  # cause
        return torch.where(energy > 0, roots, 0.0)


def program() -> None:
    """A training step on samples with gaps."""
    model = Amplitude()
    x = torch.randn(8, 6)
    x[2:4, 1] = 0
    model(x).mean().backward()


if __name__ == "__main__":
    program()
