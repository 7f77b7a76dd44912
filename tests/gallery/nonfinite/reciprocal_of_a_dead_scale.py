"""The inverse of a learned scale that has become 0, in float16.

pattern: division by zero
node: ReciprocalBackward0
"""

import torch
from torch import Tensor, nn


class Gauge(nn.Module):
    """Features in units of a scale that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 0.0, 2.0], dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        inverse = self.scale.reciprocal()  # cause
        return torch.sigmoid(x + inverse)


def program() -> None:
    """A training step."""
    model = Gauge()
    model(torch.rand(4, 3, dtype=torch.float16)).float().mean().backward()


if __name__ == "__main__":
    program()
