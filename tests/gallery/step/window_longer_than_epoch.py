"""Gradients are accumulated over more batches than an epoch has: no optimizer ever steps.

finding: never steps
"""

import torch
from torch import nn


def program() -> object:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(6):
        optimizer.zero_grad()
        for number in range(3):
            (model(torch.randn(8, 6)).square().mean() / 4).backward()
            if (number + 1) % 4 == 0:
                optimizer.step()  # cause
                optimizer.zero_grad()
    return model, optimizer
