"""A series is made to require a gradient, as if only that made the network learn.

finding: unread
"""

import torch
from torch import nn


def program() -> None:
    cell, out = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)
    optimizer = torch.optim.Adam([*cell.parameters(), *out.parameters()], lr=1e-3)
    series = torch.randn(6, 10, 3)
    series.requires_grad_()  # cause
    wanted = series.detach().sum((1, 2))
    for _ in range(4):
        states, _ = cell(series)
        loss = nn.functional.mse_loss(out(states[:, -1])[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
