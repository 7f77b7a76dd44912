"""The rate of the biases is 0 at first; a scheduler raises it later."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
    groups = [
        {"params": [one for one in model.parameters() if one.ndim > 1]},
        {"params": [one for one in model.parameters() if one.ndim <= 1]},
    ]
    optimizer = torch.optim.SGD(groups, lr=1e-2)
    waits = [lambda _: 1.0, lambda step: float(step > 100)]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, waits)
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
