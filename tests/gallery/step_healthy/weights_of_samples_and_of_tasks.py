"""Weights are multiplied with losses of samples; and one loss with weights of three scales."""

import torch
from torch import nn


def program() -> None:
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    scales = torch.tensor([1.0, 0.5, 0.25])
    for _ in range(12):
        x, weights = torch.randn(32, 4), torch.rand(32)
        error = net(x).squeeze(1) - x.sum(1)
        loss = (nn.functional.mse_loss(error, torch.zeros(32), reduction="none") * weights).mean()
        loss = loss + (net(x).square().mean() * scales).mean() + net(x).mean() * weights[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
