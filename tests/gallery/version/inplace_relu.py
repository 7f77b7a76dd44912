"""A sigmoid's output is what its derivative is made of, and relu_ overwrites it.

error: modified by an inplace operation
node: SigmoidBackward0
saved: result
"""

import torch
from torch import Tensor, nn


class Gate(nn.Module):
    """A gate whose values below one half are to be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.scale(x))
        open_ = (gate - 0.5).clamp(min=0)
        gate.relu_()  # cause
        return gate * x + open_


def program() -> None:
    """One training step."""
    torch.manual_seed(0)
    Gate()(torch.randn(4, 6)).sum().backward()


if __name__ == "__main__":
    program()
