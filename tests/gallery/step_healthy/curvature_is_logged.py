"""The curvature of a network of ReLU is looked at in each step, and nothing is trained on it."""

import torch
from torch import nn


def program() -> object:
    model = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    log = []
    for _ in range(8):
        points = torch.rand(32, 1, requires_grad=True)
        out = model(points)
        (slope,) = torch.autograd.grad(out.sum(), points, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), points, create_graph=True)
        log.append(bend.square().mean().item())
        loss = (out - points.detach().square()).square().mean() + 0.1 * slope.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, optimizer, log
