"""A memory of keys is filled through .data, so what is put there has no history.

gradient: none
cause: data
parameter: key.*
"""

import torch
from torch import Tensor, nn


class Memory(nn.Module):
    """Attends to keys that are kept in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.key = nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        keys: Tensor = self.get_buffer("keys")
        keys.data.copy_(self.key(x))  # cause
        return self.query(x) @ keys.T


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    return nn.functional.cross_entropy(model(torch.randn(3, 4)), torch.arange(3))


def program() -> nn.Module:
    """One training step."""
    model = Memory()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
