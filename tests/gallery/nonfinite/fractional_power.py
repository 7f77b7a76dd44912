"""A fractional power of a brightness that is 0, as in gamma correction.

pattern: pow with zero base
node: PowBackward0
"""

import torch
from torch import Tensor, nn


class Gamma(nn.Module):
    """Gamma correction after a learned gain."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([0.9, 1.1, 1.0]))

    def forward(self, image: Tensor) -> Tensor:
        return (image * self.gain).pow(1 / 2.2)  # cause


def program() -> None:
    """A training step on an image with a black pixel."""
    model = Gamma()
    image = torch.rand(4, 4, 3) + 0.1
    image[2, 1] = 0
    nn.functional.mse_loss(model(image), torch.rand(4, 4, 3)).backward()


if __name__ == "__main__":
    program()
