"""Linear probing: the optimizer holds the head only, the backbone gets gradients in vain."""

import torch
from torch import nn


def program() -> None:
    backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
    head = nn.Linear(16, 3)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(6):
        logits = head(backbone(torch.randn(9, 6)))
        loss = nn.functional.cross_entropy(logits, torch.randint(3, (9,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
