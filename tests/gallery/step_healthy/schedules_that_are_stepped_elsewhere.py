"""A scheduler is handed on, and one is made again under its name; both are stepped."""

import torch
from torch import nn


def stepped(scheduler: torch.optim.lr_scheduler.LRScheduler) -> None:
    scheduler.step()


def program() -> None:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    for step in range(6):
        if step == 3:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50)
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        stepped(scheduler)
