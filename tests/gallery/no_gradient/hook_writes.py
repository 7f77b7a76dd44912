"""A hook that was to clip a gradient writes into it, and clips to zero.

gradient: zero
cause: hook
parameter: lower.*
"""

import torch
from torch import Tensor, nn


def clip(gradient: Tensor) -> None:
    """Limit every element; the limit was meant to be set from outside."""
    limit = 0.0
    gradient.clamp_(-limit, limit)


class Clipped(nn.Module):
    """Two layers, and a hook between them."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.Linear(4, 6)
        self.upper = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.lower(x)  # cause
        hidden.register_hook(clip)
        return self.upper(hidden)


def program() -> nn.Module:
    """One training step."""
    model = Clipped()
    model(torch.randn(3, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
