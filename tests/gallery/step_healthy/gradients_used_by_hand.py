"""Squares of gradients are summed, gradients are clamped on both sides, a step goes down."""

import torch
from torch import nn


def program() -> None:
    net, other = nn.Linear(3, 2), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    fisher = torch.zeros_like(net.weight)
    for _ in range(12):
        x = torch.randn(32, 3)
        optimizer.zero_grad()
        other.zero_grad()
        nn.functional.mse_loss(other(net(x).tanh()), x[:, :1]).backward()
        assert net.weight.grad is not None
        fisher += net.weight.grad.square() / 12
        for p in net.parameters():
            if p.grad is not None:
                p.grad.clamp_(-1.0, 1.0)
        optimizer.step()
        with torch.no_grad():
            for p in other.parameters():
                if p.grad is not None:
                    p.add_(p.grad, alpha=-0.05)
