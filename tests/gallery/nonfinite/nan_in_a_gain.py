"""A gain is NaN, which what the node had saved tells without any more recording.

pattern: NaN in a parameter
node: MulBackward0
parameter: gain
"""

import torch
from torch import Tensor, nn


class Scaled(nn.Module):
    """Features times a gain."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3)
        self.gain = nn.Parameter(torch.tensor([1.0, float("nan"), 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.embed(x) * self.gain  # cause


def program() -> None:
    """A training step."""
    model = Scaled()
    model(torch.randn(5, 4)).sum().backward()


if __name__ == "__main__":
    program()
