"""A backbone has a rate of 0 until the head has settled."""

import torch
from torch import nn


def program() -> None:
    backbone, head = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 3)
    optimizer = torch.optim.AdamW(
        [{"params": head.parameters(), "lr": 1e-2}, {"params": backbone.parameters(), "lr": 0.0}]
    )
    for _ in range(8):
        x = torch.randn(16, 8)
        loss = nn.functional.cross_entropy(head(backbone(x)), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
