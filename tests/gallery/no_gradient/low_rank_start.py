"""A low-rank update starts with a zero factor, so its other factor has no gradient yet.

gradient: zero
cause: zero_factor
parameter: down.weight
other: base.* none frozen
"""

import torch
from torch import Tensor, nn


class LowRank(nn.Module):
    """A frozen layer and a low-rank update of it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 6)
        self.base.requires_grad_(requires_grad=False)
        self.down = nn.Linear(6, 2, bias=False)
        self.up = nn.Linear(2, 6, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))  # cause


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(4, 6)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = LowRank()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
