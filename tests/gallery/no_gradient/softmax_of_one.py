"""Attention over a sequence of one: softmax of a single score is 1, whatever the score.

gradient: zero
cause: flat
node: SoftmaxBackward0
parameter: query.*
parameter: key.*
"""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """One head."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return torch.softmax(scores, -1) @ self.value(x)  # cause


def loss(model: nn.Module) -> Tensor:
    """Of a batch of sequences of one token."""
    return model(torch.randn(5, 1, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Attention()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
