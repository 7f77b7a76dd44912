"""requires_grad is set on a module, where it is an attribute that nobody looks at.

finding: flagged
"""

import torch
from torch import nn


def program() -> None:
    backbone, head = nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 2)
    for weight in backbone.parameters():
        weight.requires_grad = False
    backbone.requires_grad = True  # type: ignore[assignment]  # cause
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
    for _ in range(4):
        loss = head(backbone(torch.randn(10, 6))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
