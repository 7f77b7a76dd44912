"""A rate of 0 is given to a group in the place of a weight decay of 0.

finding: still
"""

from typing import Any

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 2))
    groups: list[dict[str, Any]] = [
        {"params": [one for one in model.parameters() if one.ndim > 1]},
        {"params": [one for one in model.parameters() if one.ndim <= 1], "lr": 0.0},  # cause
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
