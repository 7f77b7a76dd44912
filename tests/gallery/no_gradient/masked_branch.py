"""A branch whose mask never selects it: every gradient that reaches it is zero.

gradient: zero
cause: masked
node: WhereBackward0
parameter: rare.*
"""

import torch
from torch import Tensor, nn


class Switch(nn.Module):
    """One layer for ordinary samples, one for rare ones."""

    def __init__(self) -> None:
        super().__init__()
        self.ordinary = nn.Linear(4, 2)
        self.rare = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        is_rare = x.norm(dim=-1, keepdim=True) > 1_000
        return torch.where(is_rare, self.rare(x), self.ordinary(x))  # cause


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(8, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Switch()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
