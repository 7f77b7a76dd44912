"""Rounding carried a cosine beyond 1, of which acos is NaN.

pattern: acos outside its domain
node: AcosBackward0
op: torch.acos
check_forward: yes
"""

import torch
from torch import Tensor, nn


class Turn(nn.Module):
    """The angle of a rotation, from the trace of its matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(3) * 1.000001)

    def forward(self) -> Tensor:
        cosine = (self.matrix.diagonal().sum() - 1) / 2
        return torch.acos(cosine)  # cause


def program() -> None:
    """A training step."""
    Turn()().backward()


if __name__ == "__main__":
    program()
