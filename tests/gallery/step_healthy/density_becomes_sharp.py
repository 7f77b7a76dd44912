"""The negative logarithm of a density falls far below zero, and comes to rest there."""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    x = torch.rand(64, 3)
    for _ in range(120):
        mean, log_scale = net(x).unbind(-1)
        density = torch.distributions.Normal(mean, log_scale.clamp(-6, 2).exp())
        loss = -density.log_prob(0.01 * x.sum(1)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
