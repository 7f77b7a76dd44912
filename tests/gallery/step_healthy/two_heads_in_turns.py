"""Two tasks share a trunk; each has an optimizer of its own, and they take turns."""

import torch
from torch import nn


def program() -> None:
    trunk, heads = nn.Linear(5, 9), [nn.Linear(9, 1), nn.Linear(9, 1)]
    optimizers = [torch.optim.Adam([*trunk.parameters(), *head.parameters()]) for head in heads]
    for step in range(8):
        head, optimizer = heads[step % 2], optimizers[step % 2]
        loss = (head(trunk(torch.randn(8, 5)).relu()) - step % 2).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
