"""A cosine schedule that is made for epochs and stepped for each batch.

finding: swings
"""

from __future__ import annotations

import torch
from torch import nn


def program() -> object:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(4):
        for _ in range(8):
            optimizer.zero_grad()
            (model(torch.randn(16, 4)) - 1).square().mean().backward()
            optimizer.step()
            scheduler.step()  # cause
    return model
