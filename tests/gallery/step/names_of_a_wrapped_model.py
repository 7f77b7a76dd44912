"""Weights of a wrapped model are loaded with strict=False: their names begin with module.

finding: nothing loaded
"""

import torch
from torch import nn


def network() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))


def program() -> None:
    wrapped = nn.Module()
    wrapped.module = network()
    pretrained = wrapped.state_dict()
    model = network()
    model.load_state_dict(pretrained, strict=False)  # cause
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(8):
        x = torch.randn(8, 2, 8)
        loss = nn.functional.cross_entropy(model(x), (x.mean((1, 2)) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
