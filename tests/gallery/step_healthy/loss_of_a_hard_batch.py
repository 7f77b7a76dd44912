"""The loss jumps on hard batches and comes back: nothing diverges."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(24):
        x = torch.randn(16, 6) * (300 if step % 6 == 5 else 1 + step % 3)
        loss = (model(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
