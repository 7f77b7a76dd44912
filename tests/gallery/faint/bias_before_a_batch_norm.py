"""A bias whose effect the batch norm behind it takes out.

cause: shift
node: AddmmBackward0
parameter: a.bias
"""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.b = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x)  # cause
        out: Tensor = self.b(torch.relu(self.norm(hidden)))
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
