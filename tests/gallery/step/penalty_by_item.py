"""A penalty of weights is added up by item(), and subtracted from what is to become large.

finding: no way back
"""

import torch
from torch import nn

RATE = 1e-3


def magnitude(net: nn.Module) -> float:
    total = 0.0
    for one in net.parameters():
        total += one.abs().sum().item()
    return total


class Trainer:
    """Makes the log-likelihood of labels large."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def step(self) -> None:
        x = torch.randn(16, 4)
        likely = self.net(x).log_softmax(-1)[torch.arange(16), x[:, :3].argmax(1)]
        objective = likely.mean()
        objective -= RATE * magnitude(self.net)  # cause
        self.optimizer.zero_grad()
        (-objective).backward()
        self.optimizer.step()


def program() -> None:
    trainer = Trainer()
    for _ in range(8):
        trainer.step()
