"""A gate that is closed: sigmoid(-60) times what a layer gives.

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
        self.gate = nn.Buffer(torch.full((4,), -60.0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x) * torch.sigmoid(self.gate)  # cause
        out: Tensor = self.b(hidden + x)
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
