"""An optimizer with maximize=True is given an error.

finding: option
"""

import torch
from torch import nn


def program() -> None:
    x = torch.randn(64, 5)
    y = x @ torch.randn(5, 1)
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, maximize=True)  # cause
    for _ in range(24):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
