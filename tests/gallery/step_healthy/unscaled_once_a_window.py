"""Gradients of the same batch add up over four passes, and are unscaled after the last."""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    x = torch.randn(32, 6)
    for step in range(40):
        scaler.scale((model(x) - x[:, :2]).square().mean() / 4).backward()
        if step % 4 == 3:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
