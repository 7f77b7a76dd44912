"""A training whose loss has, in one step, the square root of zero."""

from __future__ import annotations

import torch
from torch import nn


class Distance(nn.Module):
    """How far apart two batches are in the space of an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The distance of each pair."""
        difference = self.encoder(a) - self.encoder(b)
        squares: torch.Tensor = difference.square().sum(-1)
        return squares.sqrt()


def main() -> None:
    """Train until after it has gone wrong."""
    torch.manual_seed(0)
    model = Distance()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(40):
        a, b = torch.randn(16, 8), torch.randn(16, 8)
        if step == 30:
            b[5] = a[5]
        loss = (model(a, b) - (a - b).norm(dim=-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
