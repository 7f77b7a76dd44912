"""A metric taken for a loss: nothing of it requires a gradient, and backward refuses.

gradient: none
cause: integer
parameter: *
raises: does not require grad
"""

import torch
from torch import Tensor, nn


def loss(model: nn.Module) -> Tensor:
    """The share of wrong answers."""
    predicted = model(torch.randn(8, 4)).argmax(-1)  # cause
    return (predicted != torch.randint(3, (8,))).float().mean()


def program() -> nn.Module:
    """One training step."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
