"""A term whose weight is the number 0, and one that // switches on half way."""

import torch
from torch import nn

PENALTY = 0.0


def program() -> None:
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(12):
        x = torch.randn(10, 4)
        out = net(x)
        later = step // 6
        loss = (out - x).square().mean() + PENALTY * out.abs().mean()
        loss = loss + 0.1 * later * out.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
