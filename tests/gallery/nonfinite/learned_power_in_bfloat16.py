"""A learned exponent below 1 and a base of 0, in bfloat16.

pattern: pow with zero base
node: PowBackward1
"""

import torch
from torch import Tensor, nn


class Pooling(nn.Module):
    """Generalised mean pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3, bias=False)
        self.power = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return (self.embed(x).abs() ** self.power).mean(0)  # cause


def program() -> None:
    """A training step with an empty patch."""
    model = Pooling().to(torch.bfloat16)
    x = torch.randn(6, 4, dtype=torch.bfloat16)
    x[4] = 0
    model(x).sum().backward()


if __name__ == "__main__":
    program()
