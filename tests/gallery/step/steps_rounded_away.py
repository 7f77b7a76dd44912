"""Weights in bfloat16 are moved by less than they can hold.

finding: swallowed
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    x = torch.randn(32, 12, dtype=torch.bfloat16)
    for _ in range(6):
        optimizer.zero_grad()
        (model(x) - x[:, :1]).square().mean().backward()
        optimizer.step()  # cause
