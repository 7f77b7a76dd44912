"""The learning rate is set in the groups, and an object of the program has one, too."""

import torch
from torch import nn


class Settings:
    """Of the program."""

    lr = 0.05


def program() -> None:
    settings, model = Settings(), nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr)
    for _ in range(6):
        settings.lr = settings.lr * 0.9
        for group in optimizer.param_groups:
            group["lr"] = settings.lr
        optimizer.zero_grad()
        model(torch.randn(16, 5)).square().mean().backward()
        optimizer.step()
