"""LambdaLR is given the rate itself, with lr=1; then a factor, in a warm-up that is cut short."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    for base, factor in ((1.0, lambda n: 1e-3 / (n + 1)), (1e-2, lambda n: (n + 1) / 1000)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=base)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        for _ in range(12):
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
            scheduler.step()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: (n + 1) / 1000)
    for _ in range(12):
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        warm_up.step()
