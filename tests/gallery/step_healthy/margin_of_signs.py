"""A support vector machine is given 1 and -1, and most samples come to lie beyond its margin."""

import torch
from torch import nn


def program() -> None:
    machine = nn.Linear(7, 1)
    optimizer = torch.optim.SGD(machine.parameters(), lr=0.3)
    for _ in range(20):
        mushrooms = torch.randn(40, 7)
        edible = mushrooms.sum(1).sign()
        margin = 1 - edible * machine(mushrooms).squeeze(1)
        optimizer.zero_grad()
        torch.relu(margin).mean().backward()
        optimizer.step()
