"""A batch with infinity goes through the batch norm before it is skipped.

finding: buffer
"""

import torch
from torch import nn


def program() -> nn.Module:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 1, 3))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(5):
        x = torch.randn(4, 2, 12)
        if step == 2:
            x[0, 1, 5] = torch.inf
        loss = model(x).square().mean()  # cause
        if not loss.isfinite():
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
