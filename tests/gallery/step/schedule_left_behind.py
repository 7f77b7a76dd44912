"""A new optimizer takes over when the trunk is unfrozen; the scheduler holds the one before.

finding: left behind
"""

import torch
from torch import nn


def program() -> None:
    trunk, head = nn.Linear(6, 16), nn.Linear(16, 2)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for epoch in range(8):
        if epoch == 3:
            parameters = [*trunk.parameters(), *head.parameters()]
            optimizer = torch.optim.SGD(parameters, lr=0.01)  # cause
        optimizer.zero_grad()
        head(trunk(torch.randn(8, 6)).relu()).square().mean().backward()
        optimizer.step()
        scheduler.step()
