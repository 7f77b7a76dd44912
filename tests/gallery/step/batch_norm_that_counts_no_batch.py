"""momentum=0 leaves the running statistics of a batch norm as they were made.

finding: no statistics
"""

import torch
from torch import nn


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width, momentum=0)  # cause

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).relu()


def program() -> None:
    net = nn.Sequential(_Block(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 1, 5, 5)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
