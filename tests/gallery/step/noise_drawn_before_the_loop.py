"""The noise that a network predicts is drawn once.

finding: drawn once
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 32), nn.SiLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    noise = torch.randn(16, 4)  # cause
    for _ in range(8):
        x, share = torch.randn(16, 4).sign(), torch.rand(16, 1)
        mixed = share.sqrt() * noise + (1 - share).sqrt() * x
        loss = (model(torch.cat([mixed, share], dim=1)) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
