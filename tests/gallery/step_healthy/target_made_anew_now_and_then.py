"""A target network is made anew by deepcopy now and then."""

import copy

import torch
from torch import nn


def program() -> None:
    values = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(values.parameters(), lr=1e-3)
    for step in range(10):
        if step % 4 == 0:
            target = copy.deepcopy(values)
        state = torch.randn(16, 3)
        with torch.no_grad():
            wanted = state[:, :1] + 0.9 * target(state + 0.1 * torch.randn(16, 3))
        loss = nn.functional.mse_loss(values(state), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
