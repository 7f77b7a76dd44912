"""A hook, left over from an experiment, zeroes the gradient of one layer's output.

gradient: zero
cause: hook
parameter: lower.*
"""

import torch
from torch import Tensor, nn


def block(gradient: Tensor) -> Tensor:
    """Let nothing through."""
    return torch.zeros_like(gradient)


class Hooked(nn.Module):
    """Two layers, and a hook between them."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.Linear(4, 6)
        self.upper = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.sigmoid(self.lower(x))  # cause
        hidden.register_hook(block)
        return self.upper(hidden)


def program() -> nn.Module:
    """One training step."""
    model = Hooked()
    model(torch.randn(3, 4)).square().mean().backward()
    return model


if __name__ == "__main__":
    program()
