"""A validation comes before the first pass, and nothing puts the model back into training mode.

finding: mode
"""

import torch
from torch import nn


class _Trainer:
    def __init__(self) -> None:
        self.model = nn.Sequential(
            nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def validate(self) -> float:
        self.model.eval()  # cause
        with torch.no_grad():
            return self.model(torch.randn(16, 6)).square().mean().item()

    def step(self) -> None:
        loss = (self.model(torch.randn(16, 6)) - 1).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def program() -> None:
    trainer = _Trainer()
    for _ in range(4):
        trainer.validate()
        for _ in range(5):
            trainer.step()
