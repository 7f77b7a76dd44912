"""Slopes are held to 1: of a distance at each point, and of a score for each whole sample."""

import torch
from torch import Tensor, nn


def slope(out: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(out.sum(), of, create_graph=True)[0]


def program() -> None:
    distance = nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, 1))
    score = nn.Sequential(nn.Flatten(), nn.Linear(96, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam([*distance.parameters(), *score.parameters()], lr=1e-3)
    for _ in range(5):
        points = torch.randn(8, 32, 3, requires_grad=True)
        (to,) = torch.autograd.grad(distance(points).sum(), points, create_graph=True)
        away = torch.cat([to.norm(dim=-1), slope(distance(points), points).norm(dim=-1)])
        whole = slope(score(points), points).norm(2, dim=(1, 2))
        loss = (away - 1).square().mean() + (whole - 1).square().mean()
        loss = loss + distance(points.detach()).square().mean() + score(points).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
