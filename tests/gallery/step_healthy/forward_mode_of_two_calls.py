"""A directional derivative by two calls of grad, the first of which is given zeros."""

import torch
from torch import nn


def program() -> object:
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(8):
        points = torch.randn(16, 3, requires_grad=True)
        out = model(points)
        zeros = torch.zeros_like(out, requires_grad=True)
        (linear,) = torch.autograd.grad(out, points, zeros, create_graph=True)
        along = torch.randn(16, 3)
        (moved,) = torch.autograd.grad(linear, zeros, along, create_graph=True)
        loss = (moved - along[:, :2]).square().mean() + linear.square().mean()
        loss = loss + (out - points.detach()[:, :2]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, optimizer
