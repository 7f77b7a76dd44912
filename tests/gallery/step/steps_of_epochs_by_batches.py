"""A rate that is to fall every second epoch falls every second batch.

finding: rate falls
"""

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR


def program() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.4)
    data = torch.randn(96, 6)
    for _ in range(8):
        for x in data.split(16):
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
            scheduler.step()  # cause
