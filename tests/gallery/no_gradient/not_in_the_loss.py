"""An auxiliary loss is computed and printed, but nobody adds it to the loss.

gradient: none
cause: not_in_loss
parameter: auxiliary.*
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Deep(nn.Module):
    """A classifier with an auxiliary head half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.Linear(5, 6)
        self.auxiliary = nn.Linear(6, 2)
        self.upper = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.elu(self.lower(x))
        return self.upper(hidden), self.auxiliary(hidden)


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    target = torch.tensor([0, 1, 1])
    scores, early = model(torch.randn(3, 5))
    F.cross_entropy(early, target)  # cause
    return F.cross_entropy(scores, target)


def program() -> nn.Module:
    """One training step."""
    model = Deep()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
