"""Data of an example, drawn once, is made noisy and to be given back."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(16, 4)
    for _ in range(8):
        loss = nn.functional.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
