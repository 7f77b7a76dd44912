"""A multiplier is kept at 0 while its constraint holds."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    multiplier = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    ascent = torch.optim.SGD([multiplier], lr=0.1)
    for _step in range(40):
        x = torch.randn(64, 8)
        out = model(x).squeeze(1)
        cost = out.square().mean() - 5.0  # holds as long as it is below 0
        loss = (out - x[:, 0]).square().mean() + multiplier * cost
        optimizer.zero_grad()
        ascent.zero_grad()
        loss.backward()
        assert multiplier.grad is not None
        multiplier.grad.neg_()
        optimizer.step()
        ascent.step()
        with torch.no_grad():
            multiplier.clamp_(min=0)
