"""A flag freezes nothing, which matters little; the rate falls to nothing.

answers: 2
says: shrinks to nothing
"""

import torch
from torch import nn


class Pair(nn.Module):
    """A body and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x).tanh())
        return out


def program() -> Pair:
    net = Pair()
    net.body.requires_grad = False  # type: ignore[assignment]
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.3)
    for _ in range(30):
        optimizer.zero_grad()
        (net(torch.randn(8, 4)) - 1).square().mean().backward()
        optimizer.step()
        scheduler.step()  # cause
    return net
