"""A loss in square metres of astronomical distances overflows bfloat16 on its way back.

pattern: overflow in bfloat16
node: MulBackward0
"""

import torch
from torch import Tensor, nn


class Orbit(nn.Module):
    """Distances in metres."""

    def __init__(self) -> None:
        super().__init__()
        self.distance = nn.Linear(3, 1, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.distance(x) * 1e22  # cause


def program() -> None:
    """A training step."""
    model = Orbit()
    x = torch.randn(4, 3, dtype=torch.bfloat16)
    residual = model(x) - torch.full((4, 1), 3e22, dtype=torch.bfloat16)
    (residual / 1e2).pow(2).sum().backward()


if __name__ == "__main__":
    program()
