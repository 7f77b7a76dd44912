"""The rate is cut by a step schedule that is stepped for each batch.

finding: rate falls
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    for _ in range(3):
        for batch in torch.randn(8, 16, 4):
            loss = (model(batch) - batch.prod(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()  # cause
