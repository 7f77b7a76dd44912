"""A warm-up of 200 steps is stepped once an epoch.

finding: horizon
"""

import torch
from torch import nn


def factor(step: int) -> float:
    return min(1.0, (step + 1) / 200)


def program() -> None:
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(6)]
    for _ in range(5):
        for x, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), labels).backward()
            optimizer.step()
        warm_up.step()  # cause
