"""One cycle over all batches is stepped once an epoch.

finding: horizon
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=48)
    for _ in range(6):
        for batch in torch.randn(8, 16, 4):
            optimizer.zero_grad()
            (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        scheduler.step()  # cause
