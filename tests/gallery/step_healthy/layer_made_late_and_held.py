"""A layer that the first forward makes is held: the model ran once before; momentum is a number."""

import torch
from torch import nn


class _Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8, momentum=0.3), nn.ReLU())
        self.head: nn.Module | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.body(x)
        if self.head is None:
            self.head = nn.Linear(found.shape[1], 1)
        return self.head(found)


def program() -> None:
    net = _Regressor()
    net(torch.randn(4, 5))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(5):
        x = torch.randn(12, 5)
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
