"""The distance of two points that coincide: the derivative of sqrt at 0 is infinite.

pattern: sqrt at zero
node: SqrtBackward0
"""

import torch
from torch import Tensor, nn


class Distance(nn.Module):
    """How far apart two embeddings are."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        squares = torch.nn.functional.mse_loss(self.embed(a), self.embed(b), reduction="none")
        return squares.mean(-1).sqrt()  # cause


def program() -> None:
    """A training step on pairs, the last of which holds the same point twice."""
    model = Distance()
    a, b = torch.randn(8, 4), torch.randn(8, 4)
    b[7] = a[7]
    model(a, b).mean().backward()


if __name__ == "__main__":
    program()
