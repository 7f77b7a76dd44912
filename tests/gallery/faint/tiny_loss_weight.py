"""A term of the loss has a weight of 1e-12.

cause: faint_loss
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

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(x), self.b(x)


def _loss(a: Tensor, b: Tensor) -> Tensor:
    small = a.square().mean() * 1e-12  # cause
    return b.square().mean() + small


def program() -> nn.Module:
    """One training step."""
    model = Model()
    _loss(*model(torch.randn(16, 4))).backward()
    return model


if __name__ == "__main__":
    program()
