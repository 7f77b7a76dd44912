"""The learning rate is set where the optimizer does not look.

finding: no option
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(6):
        if epoch == 3:
            optimizer.lr = 0.005  # type: ignore[attr-defined]  # cause
        optimizer.zero_grad()
        model(torch.randn(16, 5)).square().mean().backward()
        optimizer.step()
