"""Reentrant checkpoint over a first block: its input needs no gradient, so the block gets none.

gradient: none
cause: checkpoint
parameter: first.*
"""

import warnings

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    """Two blocks, of which the first is recomputed in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6), nn.GELU())
        self.second = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(self.first, x, use_reentrant=True)  # cause
        return self.second(hidden)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad=True")
        return model(torch.randn(5, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Checkpointed()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
