"""Each epoch makes a scheduler anew, whose rate never gets low.

finding: schedule anew
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.1)  # cause
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(16, 5)).square().mean().backward()
            optimizer.step()
            schedule.step()
