"""Three terms of the forward cancel but for rounding.

cause: faint_meeting
node: AddmmBackward0
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
        hidden = self.a(x)  # cause
        nothing = hidden * 0.1 + hidden * 0.2 - hidden * 0.3
        out: Tensor = self.b(x) + nothing
        return out


def program() -> nn.Module:
    """One training step."""
    model = Model()
    model(torch.randn(16, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
