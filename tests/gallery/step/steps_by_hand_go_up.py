"""A step by hand adds the gradient.

finding: diverges
"""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    for _ in range(12):
        x = torch.randn(32, 3)
        net.zero_grad()
        nn.functional.mse_loss(net(x), x[:, :1]).backward()
        for p in net.parameters():
            if p.grad is not None:
                p.data += 0.1 * p.grad  # cause
