"""A router picks its expert with argmax: the choice has no derivative, and the router none.

gradient: none
cause: integer
parameter: router.*
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Mixture(nn.Module):
    """Two experts, one of which answers."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 2)
        self.experts = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).argmax(-1)  # cause
        weights = F.one_hot(chosen, 2).to(x.dtype)
        answers = torch.stack([expert(x) for expert in self.experts], -1)
        return (answers * weights[:, None]).sum(-1)


def loss(model: nn.Module) -> Tensor:
    """Of one batch, of which each expert gets some."""
    return model(torch.randn(32, 4)).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Mixture()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
