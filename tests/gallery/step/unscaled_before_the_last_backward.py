"""Gradients are unscaled between two backward passes: the second adds scaled ones to them.

finding: still scaled
"""

import torch
from torch import nn


def program() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    for _ in range(12):
        x = torch.randn(32, 6)
        optimizer.zero_grad()
        scaler.scale((model(x)[:, 0] - x[:, 0]).square().mean()).backward()
        scaler.unscale_(optimizer)  # cause
        scaler.scale((model(x)[:, 1] - x[:, 1]).square().mean() / 10).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
