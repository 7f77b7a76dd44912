"""The average of weights begins with their state dict, which is their memory, and shrinks them.

finding: multiplied
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    average = model.state_dict()
    for _ in range(20):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x[:, :2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for name, value in model.state_dict().items():
                average[name].mul_(0.9).add_(value, alpha=0.1)  # cause
