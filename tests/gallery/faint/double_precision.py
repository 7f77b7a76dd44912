"""In float64 as well: 1e-15 on the way to a layer.

cause: faint
node: MulBackward0
parameter: a.*
"""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4, dtype=torch.float64)
        self.b = nn.Linear(4, 1, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.a(x.double())) * 1e-15  # cause
        out: Tensor = self.b(hidden + 1)
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
