"""A trainer clips to a norm of its settings before the scaler unscales: steps stay visible.

finding: clipped
"""

import torch
from torch import nn


class Trainer:
    """Has the settings."""

    def __init__(self, settings: dict[str, float]) -> None:
        self.settings = settings
        self.model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13)

    def update(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings["clip"])  # cause
        self.scaler.step(self.optimizer)
        self.scaler.update()


def program() -> None:
    trainer = Trainer({"clip": 2.0})
    for step in range(12):
        x = torch.randn(16, 6)
        error = trainer.model(x) - (1 + step % 3) * x[:, :1]
        trainer.update(error.square().mean())
