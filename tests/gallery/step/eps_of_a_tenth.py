"""The eps of Adam is far larger than all gradients.

finding: option
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=10.0)  # cause
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 5)).square().mean().backward()
        optimizer.step()
