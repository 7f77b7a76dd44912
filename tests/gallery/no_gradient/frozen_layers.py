"""Layers are frozen by a pattern that fits one more than was meant.

gradient: none
cause: frozen
parameter: layers.0.*
parameter: layers.10.*
"""

import torch
from torch import Tensor, nn


class Stack(nn.Module):
    """Eleven small layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(11)])
        for name, parameter in self.layers.named_parameters():
            if name.split(".")[0].endswith("0"):
                parameter.requires_grad = False

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return model(torch.randn(3, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Stack()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
