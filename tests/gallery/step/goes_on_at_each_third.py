"""A trainer goes on to the next batch where it should have made a step.

finding: inverted
"""

import torch
from torch import nn


class Fit:
    """Adds up gradients of several batches."""

    def __init__(self, every: int) -> None:
        self.every, self.net = every, nn.GRU(5, 12, batch_first=True)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)

    def update(self) -> None:
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def epoch(self) -> None:
        for number in range(12):
            x = torch.randn(6, 7, 5)
            out, _ = self.net(x)
            (out[:, -1, :5] - x[:, 0]).abs().mean().div(self.every).backward()
            if (number + 1) % self.every == 0:  # cause
                continue
            self.update()


def program() -> None:
    fit = Fit(3)
    for _ in range(2):
        fit.epoch()
