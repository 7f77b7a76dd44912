"""What a layer gives is multiplied by 1e-20.

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
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.a(x)) * 1e-20  # cause
        out: Tensor = self.b(hidden + 1)
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
