"""Embedding and output layer share a weight and learn; what lies between them is detached.

gradient: none
cause: detach
parameter: mix.*
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Tied(nn.Module):
    """A tiny language model with tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 6)
        self.mix = nn.GRU(6, 6, batch_first=True)
        self.output = nn.Linear(6, 12, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        mixed, _ = self.mix(self.embedding(tokens))
        return self.output(mixed.detach())  # cause


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    tokens = torch.randint(12, (3, 5))
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def program() -> nn.Module:
    """One training step."""
    model = Tied()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
