"""The forward calls a deep copy of the block: gradients go to the copy, which is thrown away.

gradient: none
cause: copied
parameter: block.*
"""

import copy

import torch
from torch import Tensor, nn


class Repeated(nn.Module):
    """One block, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            block = copy.deepcopy(self.block)  # cause
            x = torch.tanh(block(x))
        out: Tensor = self.head(x)
        return out


def loss(model: nn.Module) -> Tensor:
    """Of a batch."""
    out: Tensor = model(torch.randn(5, 4))
    return out.square().mean()


def program() -> nn.Module:
    """A training step."""
    model = Repeated()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
