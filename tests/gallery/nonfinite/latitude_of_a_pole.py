"""asin at -1: the latitude of the south pole, in float64.

pattern: asin at the edge
node: AsinBackward0
"""

import torch
from torch import Tensor, nn


class Sphere(nn.Module):
    """Latitudes of points."""

    def __init__(self) -> None:
        super().__init__()
        self.height = nn.Parameter(torch.tensor([0.5, -1.0], dtype=torch.float64))

    def forward(self) -> Tensor:
        return torch.asin(self.height)  # cause


def program() -> None:
    """A training step."""
    model = Sphere()
    (model() - 0.3).abs().mean().backward()


if __name__ == "__main__":
    program()
