"""A GradScaler whose gradients are unscaled, then clipped."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(8):
        x = torch.randn(20, 6)
        optimizer.zero_grad()
        scaler.scale((model(x) - x[:, :1]).square().mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
