"""A decorator counts calls of the loss, and each round decorates what it has decorated before.

finding: wrapped again
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Score = Callable[[Tensor, Tensor], Tensor]


def counted(score: Score, calls: list[int]) -> Score:
    def counting(guess: Tensor, truth: Tensor) -> Tensor:
        calls.append(len(guess))
        return score(guess, truth)

    return counting


class _Trainer:
    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(5, 10), nn.SiLU(), nn.Linear(10, 1))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.score: Score = nn.functional.smooth_l1_loss

    def round(self) -> int:
        calls: list[int] = []
        self.score = counted(self.score, calls)  # cause
        for _ in range(2):
            tides = torch.rand(16, 5)
            self.optimizer.zero_grad()
            self.score(self.net(tides), tides.sum(1, keepdim=True)).backward()
            self.optimizer.step()
        return len(calls)


def program() -> list[int]:
    trainer = _Trainer()
    return [trainer.round() for _ in range(6)]
