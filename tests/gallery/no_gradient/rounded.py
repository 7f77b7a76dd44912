"""Quantisation without a straight-through estimator: the derivative of round is zero.

gradient: zero
cause: flat
node: RoundBackward0
parameter: encode.*
parameter: step
"""

import torch
from torch import Tensor, nn


class Quantised(nn.Module):
    """Encodes, rounds to a learned grid, decodes."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 4)
        self.step = nn.Parameter(torch.tensor(0.25))
        self.decode = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        code = self.encode(x) / self.step
        return self.decode(torch.round(code))  # cause


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    x = torch.randn(6, 4)
    return nn.functional.mse_loss(model(x), x)


def program() -> nn.Module:
    """One training step."""
    model = Quantised()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
