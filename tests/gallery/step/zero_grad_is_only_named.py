"""A trainer's method names zero_grad and does not call it, so gradients pile up.

finding: not called
"""

import torch
from torch import nn


class Trainer:
    """Holds a network and what trains it."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
        self.adam = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def update(self, x: torch.Tensor) -> None:
        self.adam.zero_grad  # noqa: B018  # cause
        loss = (self.net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        self.adam.step()


def program() -> None:
    trainer = Trainer()
    for _ in range(12):
        trainer.update(torch.randn(16, 5))
