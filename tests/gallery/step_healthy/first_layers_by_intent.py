"""The first layers are left out of the optimizer on purpose."""

import torch
from torch import nn


def program() -> None:
    layers = [part for _ in range(6) for part in (nn.Linear(6, 6), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(6, 2))
    optimizer = torch.optim.Adam(model[4:].parameters(), lr=1e-3)
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
