"""A mean over many elements, in float16 and without a loss scale: the gradient rounds to zero.

gradient: zero
cause: underflow
parameter: layer.*
"""

import torch
from torch import Tensor, nn


class Half(nn.Module):
    """A layer in float16 whose output is averaged in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 64).half()
        self.scale = nn.Parameter(torch.full((64,), 1e-4))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x.half())
        return hidden.float() * self.scale  # cause


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(256, 4)).mean()


def program() -> nn.Module:
    """One training step."""
    model = Half()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
