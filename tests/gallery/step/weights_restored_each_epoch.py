"""The best weights are loaded back after each step.

finding: set back
"""

import copy

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(5, 2)
    best = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        x = torch.randn(10, 5)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # cause
        model.load_state_dict(best)
