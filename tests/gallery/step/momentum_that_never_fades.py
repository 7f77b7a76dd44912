"""The momentum is 1.

finding: option
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=1.0)  # cause
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 5)).square().mean().backward()
        optimizer.step()
