"""Gradients are divided by their norm by hand; where it is 0 they become NaN before the step.

finding: spoilt
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(6):
        x = torch.randn(6, 4) if step < 3 else torch.zeros(6, 4)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= parameter.grad.norm()
        optimizer.step()  # cause
