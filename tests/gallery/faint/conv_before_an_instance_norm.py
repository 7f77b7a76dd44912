"""A bias whose effect the instance norm behind it takes out.

cause: shift
node: ConvolutionBackward0
parameter: a.bias
"""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv1d(1, 3, 2)
        self.norm = nn.InstanceNorm1d(3)
        self.b = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x[:, None])  # cause
        out: Tensor = self.b(torch.relu(self.norm(hidden)))
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
