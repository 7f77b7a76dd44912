"""The gradient of singular vectors where two singular values are equal: a plain answer.

pattern: equal or zero singular values
node: LinalgSvdBackward0
"""

import torch
from torch import Tensor, nn


class Rotation(nn.Module):
    """The rotation that is closest to a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(3))

    def forward(self) -> Tensor:
        u, values, v = torch.linalg.svd(self.matrix)  # cause
        return (u.abs() @ v.abs()).sum() + values.sum()


def program() -> None:
    """The first training step, at the identity."""
    Rotation()().backward()


if __name__ == "__main__":
    program()
