"""A second name that is only shorter, one of an evaluation, and a deep copy."""

import copy

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    net = model
    teacher = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = float("inf")
    for _ in range(5):
        x = torch.randn(16, 3)
        aim = teacher(x).detach()
        loss = (net(x) - aim - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            best = min(best, float((model(x) - aim).square().mean()))
