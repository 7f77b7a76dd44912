"""A support vector machine is given whether a mushroom is edible, as 0 and 1.

finding: labels
"""

import torch
from torch import nn


def program() -> None:
    machine = nn.Linear(7, 1)
    optimizer = torch.optim.SGD(machine.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(8):
        mushrooms = torch.randn(40, 7)
        edible = (mushrooms.sum(1) > 0).to(torch.float32)
        margin = 1 - edible * machine(mushrooms).squeeze(1)  # cause
        optimizer.zero_grad()
        torch.relu(margin).mean().backward()
        optimizer.step()
