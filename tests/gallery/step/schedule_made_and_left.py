"""A cosine schedule is made and never stepped.

finding: schedule unused
"""

import torch
from torch import nn


class _Trainer:
    def __init__(self, net: nn.Module, steps: int) -> None:
        self.net = net
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)  # cause

    def fit(self, batches: int) -> None:
        for _ in range(batches):
            x = torch.randn(16, 6)
            loss = (self.net(x) - x[:, :2].tanh()).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def program() -> None:
    _Trainer(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2)), 8).fit(8)
