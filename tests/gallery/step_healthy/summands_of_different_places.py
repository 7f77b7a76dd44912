"""Rows are added to places that differ, and by index_add to places that don't."""

import torch
from torch import nn


def program() -> None:
    user, item = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = torch.optim.Adam([*user.parameters(), *item.parameters()], lr=1e-3)
    for _ in range(6):
        x, owner = torch.randn(12, 4), torch.randint(0, 5, (12,))
        total = torch.zeros(5, 3).index_add(0, owner, item(x))
        chosen = torch.randperm(5)[:3]
        total[chosen] += user(x[:3])
        loss = (total - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
