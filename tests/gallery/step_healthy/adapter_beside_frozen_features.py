"""A linear adapter corrects what frozen layers give, before a linear head."""

import torch
from torch import nn


def program() -> None:
    frozen = nn.Sequential(nn.Linear(6, 12), nn.ReLU()).requires_grad_(requires_grad=False)
    adapter, head = nn.Linear(12, 12), nn.Linear(12, 3)
    nn.init.zeros_(adapter.weight)
    optimizer = torch.optim.SGD([*adapter.parameters(), *head.parameters()], lr=0.05)
    for _ in range(8):
        with torch.no_grad():
            features = frozen(torch.randn(16, 6))
        wanted = torch.randint(3, (16,))
        loss = nn.functional.cross_entropy(head(features + adapter(features)), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
