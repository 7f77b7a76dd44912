"""Pre-activations of a tanh beyond 9: its derivative rounds to next to nothing.

cause: faint
node: TanhBackward0
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
        nn.init.constant_(self.a.bias, 8.6)
        nn.init.uniform_(self.a.weight, -0.1, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.a(x))  # cause
        out: Tensor = self.b(hidden)
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
