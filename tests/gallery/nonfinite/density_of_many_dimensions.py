"""The density of a point is a product over dimensions that is too small for its inverse.

pattern: log of nearly zero
node: LogBackward0
remedy: logsumexp
"""

import torch
from torch import Tensor, nn


class Mixture(nn.Module):
    """Densities of two normal distributions, and how much each counts."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(2, 6))
        self.weight = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        density = torch.exp(-0.5 * (x[:, None] - self.mean) ** 2) / 2.5
        return (torch.softmax(self.weight, 0) * density.prod(2)).sum(1)


def program() -> None:
    """A training step in which one point is far away."""
    points = torch.full((4, 6), 1.0)
    points[2] = 5.53
    likelihood = Mixture()(points)
    loss = -torch.log(likelihood)  # cause
    loss.mean().backward()


if __name__ == "__main__":
    program()
