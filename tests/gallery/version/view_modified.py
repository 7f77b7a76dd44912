"""A view of the activation that pow saved is clamped in place, under no_grad.

error: modified by an inplace operation
node: PowBackward0
saved: self
"""

import torch
from torch import Tensor, nn


class Energy(nn.Module):
    """Squares of features, the first channel of which must not be negative."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(x).tanh()
        energy = features.pow(2)
        with torch.no_grad():
            first = features[:, 0]
            first.clamp_(min=0)  # cause
        return energy


def program() -> None:
    """One training step."""
    torch.manual_seed(0)
    Energy()(torch.randn(3, 4)).sum().backward()


if __name__ == "__main__":
    program()
