"""The gradient of each sample is clipped by a helper before it is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    class Private:
        def __init__(self, params: Iterable[nn.Parameter]) -> None:
            self.params = list(params)
            self.total = [torch.zeros_like(p) for p in self.params]

        def take(self) -> None:
            nn.utils.clip_grad_norm_(self.params, 1.0)
            for p, total in zip(self.params, self.total, strict=True):
                assert p.grad is not None
                total.add_(p.grad)
                p.grad = None

        def put(self, count: int) -> None:
            for p, total in zip(self.params, self.total, strict=True):
                p.grad = (total + torch.randn_like(p) * 0.1) / count
                total.zero_()

    private = Private(model.parameters())
    for _epoch in range(6):
        batch = torch.randn(16, 4)
        for x in batch:
            (model(x[None]).squeeze() - x[0]).square().backward()
            private.take()
        private.put(len(batch))
        optimizer.step()
        private.put(1)
        for p in model.parameters():
            p.grad = None
