"""A layer is made when its size is known, after the optimizer.

finding: not held
"""

import torch
from torch import nn


class _Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3)
        self.out: nn.Module | None = None

    def build(self, features: int) -> None:
        self.out = nn.Linear(features, 3)  # cause

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.conv(x).relu().flatten(1)
        if self.out is None:
            self.build(found.shape[1])
        assert self.out is not None
        return self.out(found)


def program() -> None:
    net = _Classifier()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(6):
        loss = nn.functional.cross_entropy(net(torch.randn(9, 2, 10)), torch.randint(3, (9,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
