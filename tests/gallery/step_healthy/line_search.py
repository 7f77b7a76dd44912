"""A line search puts the weights back before it steps again with half the rate."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
    x = torch.randn(256, 8)
    y = x[:, 0] * x[:, 1]

    def loss_of() -> torch.Tensor:
        return (model(x).squeeze(1) - y).square().mean()

    for _step in range(30):
        optimizer.param_groups[0]["lr"] = 4.0
        before = [p.detach().clone() for p in model.parameters()]
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        while True:
            optimizer.step()
            with torch.no_grad():
                if loss_of() < loss or optimizer.param_groups[0]["lr"] < 1e-3:
                    break
                for p, old in zip(model.parameters(), before, strict=False):
                    p.copy_(old)
            optimizer.param_groups[0]["lr"] *= 0.5
