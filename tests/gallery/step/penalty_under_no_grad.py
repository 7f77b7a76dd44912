"""A trainer's penalty of weights is computed by a method that has gradients turned off.

finding: no way back
"""

import torch
from torch import Tensor, nn


class Trainer:
    """Fits a network whose weights are to stay small."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02)
        self.strength = 1e-2

    @torch.no_grad()
    def squares(self) -> Tensor:
        return torch.stack([one.square().sum() for one in self.net.parameters()]).sum()

    def step(self, x: Tensor) -> None:
        loss = nn.functional.mse_loss(self.net(x), x.sum(1, keepdim=True))
        loss = loss + self.strength * self.squares()  # cause
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def program() -> None:
    trainer = Trainer()
    for _ in range(8):
        trainer.step(torch.randn(16, 4))
