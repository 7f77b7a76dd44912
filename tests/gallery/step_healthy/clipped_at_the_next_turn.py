"""Clipping and the step stand at the beginning of a turn, for the pass of the turn before."""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for turn in range(9):
        if turn:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        x = torch.randn(32, 5) * 20
        (model(x) - x[:, :1]).square().mean().backward()
