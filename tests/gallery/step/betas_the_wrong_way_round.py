"""The two betas of Adam are swapped, by names.

finding: option
"""

import torch
from torch import nn


def program() -> None:
    slow = 0.98
    fast = 0.9
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 1))
    optimizer = torch.optim.AdamW(  # cause
        model.parameters(),
        lr=1e-3,
        betas=(slow, fast),
    )
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 5)).square().mean().backward()
        optimizer.step()
