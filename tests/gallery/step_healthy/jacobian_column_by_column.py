"""Derivatives of each column, by weights and by sums, and of noise that differs each time."""

import torch
from torch import Tensor, nn


def along(out: Tensor, of: Tensor, weights: Tensor) -> Tensor:
    return torch.autograd.grad(out, of, weights, create_graph=True)[0]


def program() -> None:
    field = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
    for _ in range(6):
        x = torch.rand(32, 2, requires_grad=True)
        out = field(x)
        first = along(out, x, torch.tensor([1.0, 0.0]).expand(32, 2))
        last = along(out[:, 1].sum(), x, torch.tensor(1.0))
        noise = [torch.randn(32, 2) for _ in range(2)]
        trace = sum((along(out, x, each) * each).sum(1).mean() for each in noise)
        total = along(out, x, torch.ones_like(out))
        loss = (first + last - total).square().mean() + trace + out.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
