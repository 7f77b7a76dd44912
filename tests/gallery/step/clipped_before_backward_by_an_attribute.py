"""Gradients are clipped, to what an attribute says, before there are any.

finding: not clipped
"""

import torch
from torch import nn


class _Trainer:
    def __init__(self, model: nn.Module, limit: float) -> None:
        self.model, self.limit = model, limit
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss = (self.model(x) * 60 - x.sum(1, keepdim=True) * 40).square().mean()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)  # cause
        loss.backward()
        self.optimizer.step()


def program() -> None:
    torch.manual_seed(0)
    trainer = _Trainer(nn.Linear(6, 1), limit=0.5)
    for _ in range(10):
        trainer.step(torch.randn(16, 6))
