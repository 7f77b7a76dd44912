"""Attention weights are masked by assignment after the softmax that saved them.

error: modified by an inplace operation
node: SoftmaxBackward0
saved: result
"""

import math

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """One head, which forgets the first token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).chunk(3, dim=-1)
        scores = query @ key.transpose(-2, -1) / math.sqrt(x.shape[-1])
        weights = scores.softmax(-1)
        weights[..., 0] = 0.0  # cause
        return weights @ value


def program() -> None:
    """One training step."""
    torch.manual_seed(0)
    Attention(8)(torch.randn(2, 5, 8)).square().mean().backward()


if __name__ == "__main__":
    program()
