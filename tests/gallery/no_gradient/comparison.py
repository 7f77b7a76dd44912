"""A learned gate is compared with one half, and a comparison has no derivative.

gradient: none
cause: integer
parameter: gate
"""

import torch
from torch import Tensor, nn


class Pruned(nn.Module):
    """A layer some of whose inputs are switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(6))
        self.layer = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        mask = (torch.sigmoid(self.gate) > 0.5).float()  # cause
        return self.layer(x * mask)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return nn.functional.mse_loss(model(torch.randn(5, 6)), torch.ones(5, 2))


def program() -> nn.Module:
    """Two training steps."""
    model = Pruned()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    return model


if __name__ == "__main__":
    program()
