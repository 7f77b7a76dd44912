"""Gradients of each micro batch are clipped and summed by hand; a step takes what was summed."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for turn in range(24):
        x = torch.randn(8, 6)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
        for kept, p in zip(sums, model.parameters(), strict=True):
            if p.grad is not None:
                kept.add_(p.grad.sign())
        if turn % 4 == 3:
            optimizer.step()
            with torch.no_grad():
                for kept, p in zip(sums, model.parameters(), strict=True):
                    p.sub_(kept, alpha=0.01)
                    kept.zero_()
