"""A group has an entry that the program reads itself."""

from typing import Any

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 2)
    groups: list[dict[str, Any]] = [
        {"params": body.parameters()},
        {"params": head.parameters(), "wd": 1e-2, "lr": 1e-3},
    ]
    optimizer = torch.optim.Adam(groups, lr=1e-5)
    for _ in range(8):
        for group in optimizer.param_groups:
            group["weight_decay"] = group["wd"] if "wd" in group else 0.0  # noqa: SIM401
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        (head(body(x)) - x[:, :2]).square().mean().backward()
        optimizer.step()
