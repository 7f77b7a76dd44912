"""Probabilities are summed over all classes: that is 1 whatever they are.

cause: faint
node: SoftmaxBackward0
parameter: a.*
"""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.softmax(self.a(x), -1).sum(-1, keepdim=True)  # cause
        out: Tensor = self.b(x) + 3 * total
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
