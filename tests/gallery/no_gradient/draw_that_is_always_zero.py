"""Patches are hidden by a draw from 0 to 0, since the upper end is not drawn: none is hidden.

gradient: zero
cause: masked
node: WhereBackward0
parameter: hidden
"""

import torch
from torch import Tensor, nn


class Masked(nn.Module):
    """Hidden patches are replaced by what is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.decode = nn.Linear(4, 6), nn.Linear(6, 4)
        self.hidden = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        is_hidden = torch.randint(0, 1, x.shape[:2]).bool().unsqueeze(-1)
        tokens = torch.where(is_hidden, self.hidden, self.embed(x))  # cause
        return self.decode(tokens.tanh())


def loss(model: nn.Module) -> Tensor:
    """Of one batch."""
    x = torch.randn(8, 5, 4)
    return (model(x) - x).square().mean()


def program() -> nn.Module:
    """One training step."""
    model = Masked()
    loss(model).backward()
    return model


if __name__ == "__main__":
    program()
