"""Weights and optimizer are in float16: the second moment is 0 and so is eps.

finding: spoilt
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(6, 3, dtype=torch.float16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        x = torch.randn(8, 6, dtype=torch.float16)
        loss = (model(x) * 1e-3).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # cause
