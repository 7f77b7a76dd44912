"""The rate of a group is given by another name, which the optimizer ignores.

finding: option
"""

from typing import Any

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 2)
    groups: list[dict[str, Any]] = [
        {"params": body.parameters()},
        {"params": head.parameters(), "learning_rate": 1e-2},  # cause
    ]
    optimizer = torch.optim.Adam(groups, lr=1e-5)
    for _ in range(8):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        (head(body(x)) - x[:, :2]).square().mean().backward()
        optimizer.step()
