"""Divergence and curl of a field are taken of derivatives of the sum of its two components.

finding: same derivative
"""

import torch
from torch import Tensor, nn


def gradient(out: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(out, of, torch.ones_like(out), create_graph=True)[0]


def program() -> None:
    field = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
    for _ in range(6):
        xy = torch.rand(32, 2, requires_grad=True)
        uv = field(xy)
        du = gradient(uv, xy)
        dv = gradient(uv, xy)  # cause
        loss = (du[:, 0] + dv[:, 1]).square().mean() + (uv - xy.detach()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
