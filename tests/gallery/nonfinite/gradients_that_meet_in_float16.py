"""Two finite gradients meet at a shared activation, and their sum is beyond float16.

pattern: overflow in float16
kind: sum
node: TanhBackward0
"""

import torch
from torch import Tensor, nn


class TwoHeads(nn.Module):
    """Two heads on one body."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4, dtype=torch.float16)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.body(x))  # cause
        return (y * 200).float().sum() + (y * 150).float().sum()


def program() -> None:
    """A training step with a loss scale of 256, of which each head alone can stand its part."""
    model = TwoHeads()
    (model(torch.randn(4, 4, dtype=torch.float16)) * 256).backward()


if __name__ == "__main__":
    program()
