"""zero_grad is called between backward and step.

finding: cleared
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Linear(5, 1)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        x = torch.randn(7, 5)
        loss = (model(x) - x[:, :1]).abs().mean()
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()  # cause
