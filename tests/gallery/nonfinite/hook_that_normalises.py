"""A tensor hook divides the gradient by its norm, which is 0 for a feature that is not used.

pattern: non-finite gradient from a hook
kind: hook
node: TanhBackward0
"""

import torch
from torch import Tensor, nn


def to_unit_length(gradient: Tensor) -> Tensor:
    """The gradient of each feature, at length 1."""
    return gradient / gradient.norm(dim=0)


class Body(nn.Module):
    """Features whose gradients are normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.embed(x))  # cause
        y.register_hook(to_unit_length)
        return y


def program() -> None:
    """A training step that uses two of three features."""
    model = Body()
    model(torch.randn(5, 4))[:, :2].pow(2).mean().backward()


if __name__ == "__main__":
    program()
