"""Gradients are clipped while they are still scaled.

finding: clipped
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18)
    for _ in range(8):
        x = torch.randn(20, 6)
        optimizer.zero_grad()
        scaler.scale((model(x) - x[:, :1]).square().mean()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # cause
        scaler.step(optimizer)
        scaler.update()
