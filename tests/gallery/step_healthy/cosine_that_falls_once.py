"""A cosine that falls over all batches, one that goes on for a little, and one that restarts."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import lr_scheduler


def program() -> object:
    kept = []
    for made in (
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 32),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 27),
        lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 8),
    ):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        scheduler = made(optimizer)
        for _ in range(32):
            optimizer.zero_grad()
            (model(torch.randn(16, 4)) - 1).square().mean().backward()
            optimizer.step()
            scheduler.step()
        kept.append(model)
    return kept
