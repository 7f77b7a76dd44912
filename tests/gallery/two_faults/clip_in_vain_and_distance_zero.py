"""Clipping stands before backward, which is harmless; two equal points break the run.

answers: 2
says: norm at zero
"""

import torch
from torch import nn


def program() -> None:
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for step in range(12):
        a, b = torch.randn(8, 4) * 9, torch.randn(8, 4) * 9
        if step == 9:
            b[3] = a[3]
        optimizer.zero_grad()
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        apart = (net(a) - net(b)).square().sum(1).sqrt()  # cause
        apart.square().mean().backward()
        optimizer.step()
