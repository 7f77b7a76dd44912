"""A layer is made but forward forgets to call it, as a torch.nn.ModuleList invites to.

gradient: none
cause: unused
parameter: blocks.2.*
"""

import torch
from torch import Tensor, nn


class Blocks(nn.Module):
    """Three layers, of which the loop takes two."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks[:-1]:
            x = torch.tanh(block(x))
        return x


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(3, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Blocks()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
