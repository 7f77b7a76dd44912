"""A penalty has a pass of its own in each fourth step, and several batches make a step."""

import torch
from torch import nn


def program() -> None:
    first = nn.Linear(8, 16)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(24):
        x = torch.randn(8, 8)
        ((model(x) - x.sum(1, keepdim=True)).square().mean() / 2).backward()
        if step % 4 == 0:
            (0.01 * first.weight.square().sum()).backward()
        if step % 2 == 0:
            continue
        optimizer.step()
        optimizer.zero_grad()
