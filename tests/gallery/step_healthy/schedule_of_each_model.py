"""Each turn of a loop trains a model with an optimizer and a schedule of its own."""

import torch
from torch import nn


def program() -> None:
    for _ in range(4):
        model = nn.Linear(5, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.1)
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(16, 5)).square().mean().backward()
            optimizer.step()
            schedule.step()
