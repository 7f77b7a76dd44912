"""Activations overflow in the forward of a float16 model, before there is any gradient.

pattern: overflow in float16
node: DivBackward0
op: Tensor.pow
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Energy(nn.Module):
    """The log of the energy of features."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(4, 6, dtype=torch.float16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x) * 300
        squares = y.pow(2)  # cause
        return squares / (1 + squares)


def program() -> None:
    """A training step."""
    model = Energy()
    model(torch.randn(4, 4, dtype=torch.float16)).float().mean().backward()


if __name__ == "__main__":
    program()
