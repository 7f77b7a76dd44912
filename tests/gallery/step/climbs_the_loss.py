"""maximize=True is left from another script: each step makes the loss larger.

finding: diverges
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, maximize=True)  # cause
    x = torch.randn(64, 6)
    y = x @ torch.randn(6, 1)
    for _ in range(40):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
